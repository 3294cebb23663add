"""Run a module or a program in a process with the template's imports.

    python -m tests.fakes.warm MODULE [ARG...]
    python -m tests.fakes.warm -c PROGRAM [ARG...]

That is faster than the module's own imports, and what they warn of is nobody's business here.
"""

import runpy
import sys

from nodeagent.rank.process.warm_imports import import_training_program


def main() -> None:
    """Do what the command line says."""
    import_training_program()
    sys.argv = sys.argv[1:]
    if sys.argv[0] == "-c":
        exec(compile(sys.argv.pop(1), "<program>", "exec"), {"__name__": "__main__"})
    else:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
