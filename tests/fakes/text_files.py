"""Files that tests write for the program to read."""

from pathlib import Path


def write(path: Path, text: str) -> Path:
    """Write a file, and its folder if there is none; return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def append(path: Path, text: str | bytes) -> None:
    """Append to a file as another program does."""
    with path.open("ab") as file:
        file.write(text.encode() if isinstance(text, str) else text)


def settings_file(directory: Path, text: str) -> Path:
    """Write a settings file, and return its path."""
    return write(directory / "settings.toml", text)
