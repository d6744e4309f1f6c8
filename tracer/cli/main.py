"""`tracer`: finds its verbs by entry point, loads one when it is called, shows errors once."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import typer
from typer.core import TyperGroup
from typer.main import get_command

from probes.errors import ExitCode, TracerError
from tracer.version import VERSION

GROUP = "tracer.commands"
_ORDER = (
    "doctor", "record", "list", "info", "report", "compare", "simulate", "calibrate", "query",
    "import", "export", "pack", "unpack", "workload", "study", "clean",
)  # fmt: skip
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 80}


class Verbs(TyperGroup):
    """The verbs of all installed packages. One is imported when it is called, not before."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of the verbs: ours in the order of use, then others'."""
        names = sorted(name for name in _entry_points() if "." not in name)
        return sorted(names, key=lambda n: _ORDER.index(n) if n in _ORDER else len(_ORDER))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The verb as the help page needs it: its name and first line, nothing imported."""
        entry = _entry_points().get(cmd_name)
        if entry is None:
            return None
        stub = typer.Typer(add_completion=False)
        stub.command(cmd_name, help=_first_line(entry), context_settings=_SETTINGS)(lambda: None)
        return get_command(stub)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The verb that is being called (or completed), imported."""
        name, _, rest = super().resolve_command(ctx, args)
        if name is None:
            return name, None, rest
        return name, load(name), rest


def load(name: str) -> Any:
    """A verb, imported, as a command."""
    function = _entry_points()[name].load()
    if isinstance(function, typer.Typer):
        function.info.name = name
        group = typer.Typer(add_completion=False, rich_markup_mode="rich")
        group.add_typer(function, name=name, context_settings=_SETTINGS)
        group.callback()(lambda: None)
        for nested, entry in _entry_points().items():
            if nested.startswith(f"{name}."):  # another package's verb among these
                called = nested.partition(".")[2]
                function.command(called, context_settings=_SETTINGS)(entry.load())
        return cast(Any, get_command(group)).commands[name]
    app = typer.Typer(add_completion=False, rich_markup_mode="rich")
    options = getattr(function, "verb_options", {})
    settings = {**_SETTINGS, **options.get("context_settings", {})}
    epilog = options["epilog"]() if "epilog" in options else None
    app.command(name, context_settings=settings, epilog=epilog)(function)
    return get_command(app)


def verb(
    context_settings: dict[str, Any] | None = None, epilog: Callable[[], str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a verb context settings of its own, or an end to its help page."""
    options: dict[str, Any] = {}
    if context_settings:
        options["context_settings"] = context_settings
    if epilog:
        options["epilog"] = epilog

    def attach(function: Callable[..., None]) -> Callable[..., None]:
        cast(Any, function).verb_options = options
        return function

    return attach


_found: dict[str, metadata.EntryPoint] = {}


def _entry_points() -> dict[str, metadata.EntryPoint]:
    if not _found:
        _found.update({entry.name: entry for entry in metadata.entry_points(group=GROUP)})
    return _found


def _first_line(entry: metadata.EntryPoint) -> str:
    """The first line of a verb's docstring, or of its module's, read from its source."""
    try:
        spec = find_spec(entry.module)
        assert spec is not None and spec.origin is not None
        tree = ast.parse(Path(spec.origin).read_text())
    except (ImportError, OSError, SyntaxError, AssertionError):
        return ""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == entry.attr:
            return (ast.get_docstring(node) or "").partition("\n")[0]
    return (ast.get_docstring(tree) or "").partition("\n")[0]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tracer {VERSION}")
        raise typer.Exit


app = typer.Typer(cls=Verbs, context_settings=_SETTINGS, no_args_is_help=True)


@app.callback()
def tracer(
    version: bool = typer.Option(
        False, "--version", help="Show the version.", callback=_version, is_eager=True
    ),
) -> None:
    """What the Linux kernel does for a training job, and what a flush layer would change.

    Example: sudo tracer record -o run.trace -- python train.py
    """


def main() -> None:
    """Run `tracer`; the one place where errors become output and exit codes."""
    _open_standard_streams()
    try:
        app()
    except TracerError as error:
        _complain(error.exit_code, str(error))
    except KeyboardInterrupt:
        _complain(ExitCode.ABORTED, "aborted")
    except OSError as error:
        _complain(ExitCode.FAILURE, f"{error.filename or 'system'}: {error.strerror or error}")
    except Exception as error:
        if isinstance(code := getattr(error, "exit_code", None), int):
            _complain(code, str(error))  # of another package's verb
        if os.environ.get("TRACER_DEBUG"):
            raise
        kind = type(error).__name__
        _complain(
            ExitCode.FAILURE,
            f"a mistake of tracer's own ({kind}: {error}); "
            "TRACER_DEBUG=1 shows where, please report it",
        )


def _open_standard_streams() -> None:
    """Put /dev/null where stdin, stdout or stderr are closed.

    Else the next file that is opened would be one of them, and the recorded command's, too.
    """
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
            os.set_inheritable(fd, True)
            setattr(sys, name, os.fdopen(fd, "r" if fd == 0 else "w", closefd=False))


def _complain(code: int, text: str) -> None:
    """One line on stderr, whatever bytes a name in it may hold, and the exit code."""
    say(f"tracer: {text.replace(chr(10), ' ')}")
    sys.exit(code)


def say(text: str) -> None:
    """Print one line on stderr, whatever bytes a name in it may hold."""
    typer.echo(plain(text), err=True)


def plain(text: str) -> str:
    """A text that cannot speak to the terminal: what is not printable is escaped.

    A byte that is no UTF-8, in a text of `os.fsdecode`, is escaped as that byte.
    """
    return "".join(c if c.isprintable() else f"\\x{_number(c):02x}" for c in text)


def _number(character: str) -> int:
    number = ord(character)
    return number & 0xFF if 0xDC80 <= number <= 0xDCFF else number
