"""The console in a browser on this machine, view only. Begin with ``web_server``.

``web_server`` serves a page and its terminal, and starts a console process for each browser tab.
``page.html`` and ``page.js`` are the page.
"""
