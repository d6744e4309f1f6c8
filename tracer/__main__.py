"""The program `tracer`, and `python -m tracer`.

Modules take a moment to import. Ctrl-C ends the program without a word meanwhile, as SIGINT ends
any program; Python would print a traceback.
"""

import signal


def main() -> None:
    """Imports and runs `tracer`. An ignored SIGINT (background jobs of shells) stays ignored."""
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tracer.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
