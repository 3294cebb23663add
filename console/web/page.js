// Keys go to the terminal as soon as it is connected, without a click into it first.
window.addEventListener("load", () => {
  const seen = new MutationObserver(() => {
    if (document.body.classList.contains("-loaded")) {
      seen.disconnect();
      document.querySelector("textarea.xterm-helper-textarea")?.focus();
    }
  });
  seen.observe(document.body, { attributes: true, attributeFilter: ["class"] });
});
