"""Lists folders with many modules and long modules. It fails nothing: read it, and decide.

    python tools/rooms.py

Some 15 modules a folder and 350 lines a module are what a reader takes in at once. An idea that
needs more keeps its place: two modules for one idea are harder to follow than a long one.
"""

from collections import Counter
from pathlib import Path
from typing import Final

_PACKAGES: Final = ("console", "controller", "nodeagent", "profiles", "benchmarks")
_MANY_MODULES: Final = 15
_MANY_LINES: Final = 350


def main() -> None:
    """Print them, the largest first."""
    root = Path(__file__).parents[1]
    modules = [path for package in _PACKAGES for path in (root / package).rglob("*.py")]
    lengths = {path: len(path.read_text("utf-8").splitlines()) for path in modules}
    folders = Counter(path.parent for path in modules if path.name != "__init__.py")
    print(f"{len(modules)} modules, {sum(lengths.values())} lines")
    for path, num in sorted(lengths.items(), key=lambda each: -each[1]):
        if num > _MANY_LINES:
            print(f"{path.relative_to(root)}: {num} lines")
    for folder, num in folders.most_common():
        if num > _MANY_MODULES:
            print(f"{folder.relative_to(root)}: {num} modules")


if __name__ == "__main__":
    main()
