"""`tracer`: finds its verbs by entry point, imports a verb when it is called, prints errors."""

from __future__ import annotations

import ast
import atexit
import contextlib
import errno
import gc
import inspect
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from tracer.cli.completion import completion
from tracer.cli.streams import STDOUT, open_standard_streams
from tracer.cli.usage import our_usage_errors
from tracer.probes.errors import ExitCode, Interrupted, TracerError, UsageError
from tracer.probes.notice import show_notices
from tracer.probes.text import printable
from tracer.store.interrupt import FirstSignal
from tracer.store.names import refuse_empty
from tracer.version import VERSION

GROUP = "tracer.commands"
_ORDER = (
    "doctor", "record", "list", "info", "report", "explain", "compare", "predict", "simulate",
    "calibrate", "query", "import", "export", "pack", "unpack", "workload", "study", "clean",
)  # fmt: skip
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 80}


def _without_types(parameters: list[Any]) -> list[Any]:
    """Returns the parameters. On the help page, flags and arguments show no type."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
        elif parameter.param_type_name == "argument":
            parameter.display_type_rich = lambda ctx: None
    return parameters


def _flowing(text: str) -> str:
    """Returns a help text with each paragraph in one line, which a terminal of any width breaks.

    Paragraphs with an indented line, such as examples, keep their lines.
    """
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(p if "\n " in p else p.replace("\n", " ") for p in paragraphs)


class _Verb(TyperCommand):
    """A verb."""

    lists: Callable[[], dict[str, str]] | None = None
    """Makes the lists of names that help texts have in braces. Its modules take time to import."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Returns its options and arguments."""
        return _without_types(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes the help page, with the lists in it."""
        self.help = _flowing(self.help or "")
        if self.lists is not None:
            lists = self.lists()
            for parameter in super().get_params(ctx):
                if help := getattr(parameter, "help", None):
                    cast(Any, parameter).help = help.format(**lists)
        super().format_help(ctx, formatter)


class _Group(TyperGroup):
    """A verb with verbs of its own."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Returns its options and arguments."""
        return _without_types(super().get_params(ctx))


@contextlib.contextmanager
def _as_interrupted() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted from None


class Verbs(_Group):
    """The verbs of all installed packages. A verb is imported only when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Returns the names of the verbs: ours in the order of use, then the others."""
        names = sorted(name for name in find_verbs() if "." not in name)
        return sorted(names, key=lambda n: _ORDER.index(n) if n in _ORDER else len(_ORDER))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Returns a verb's name and first line for the help page, without importing the verb."""
        entry = find_verbs().get(cmd_name)
        if entry is None:
            return None
        stub = typer.Typer(add_completion=False)
        stub.command(cmd_name, help=_first_line(entry), context_settings=_SETTINGS)(lambda: None)
        return get_command(stub)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Imports and returns the verb that is called or completed."""
        if args and args[0] not in find_verbs():
            # Typer suggests similar names of these.
            self.commands = {verb: self.get_command(ctx, verb) for verb in self.list_commands(ctx)}
        name, _, rest = super().resolve_command(ctx, args)
        if name is None:
            return name, None, rest
        return name, load(name), rest

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **options: Any
    ) -> Any:
        """Reads the options before the verb; Typer imports modules for them.

        Raises Interrupted for Ctrl-C: Typer would exit without a word.
        """
        with _as_interrupted(), completion(args):
            if not args:  # Typer shows the help page by an error.
                return super().make_context(info_name, args, parent, **options)
            with our_usage_errors():
                return super().make_context(info_name, args, parent, **options)

    def invoke(self, ctx: Any) -> Any:
        """Imports and runs a verb. Raises Interrupted for Ctrl-C, as above."""
        with _as_interrupted(), our_usage_errors(ctx):
            return super().invoke(ctx)


def load(name: str) -> Any:
    """Imports a verb and returns it as a command."""
    function = find_verbs()[name].load()
    if isinstance(function, typer.Typer):
        function.info.name = name
        group = typer.Typer(add_completion=False, rich_markup_mode="rich")
        group.add_typer(function, name=name, context_settings=_SETTINGS, cls=_Group)
        group.callback()(lambda: None)
        for nested, entry in find_verbs().items():
            if nested.startswith(f"{name}."):  # another package adds this verb to the group
                called = nested.partition(".")[2]
                function.command(called, context_settings=_SETTINGS)(entry.load())
        for registered in function.registered_commands:
            registered.cls = _Verb
        return cast(Any, get_command(group)).commands[name]
    app = typer.Typer(add_completion=False, rich_markup_mode="rich")
    options = getattr(function, "verb_options", {})
    settings = {**_SETTINGS, **options.get("context_settings", {})}
    epilog = options["epilog"]() if "epilog" in options else None
    app.command(name, cls=_Verb, context_settings=settings, epilog=epilog)(function)
    command: Any = get_command(app)
    command.lists = options.get("lists")
    return command


def verb(
    context_settings: dict[str, Any] | None = None,
    epilog: Callable[[], str] | None = None,
    lists: Callable[[], dict[str, str]] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a verb its own context settings, or texts for its help page.

    `epilog` makes the end of the page, `lists` the texts for {NAMES} in the help of its options.
    """
    options: dict[str, Any] = {}
    if lists:
        options["lists"] = lists
    if context_settings:
        options["context_settings"] = context_settings
    if epilog:
        options["epilog"] = epilog

    def attach(function: Callable[..., None]) -> Callable[..., None]:
        cast(Any, function).verb_options = options
        return function

    return attach


_found: dict[str, metadata.EntryPoint] = {}


def find_verbs() -> dict[str, metadata.EntryPoint]:
    """Returns the verbs of all installed packages by their names; looks for them only once."""
    if not _found:
        _found.update({entry.name: entry for entry in metadata.entry_points(group=GROUP)})
    return _found


def _first_line(entry: metadata.EntryPoint) -> str:
    """Returns the first line of the docstring of a verb or its module, read from the source."""
    try:
        spec = find_spec(entry.module)
        assert spec is not None and spec.origin is not None
        tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
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
    """Show what Linux does for a PyTorch training job, and why its steps take their time.

    It also predicts what other memory, or a flush layer before the disk, would change.

    Example: sudo tracer record -o run.trace -- python train.py
    """


def main() -> None:
    """Runs `tracer`. Only this function turns errors into output and exit codes."""
    # Imports make many objects and no garbage; a verb starts 0.3 s sooner with fewer collections.
    gc.set_threshold(50_000, 20, 50)
    # Python would look through all of them once more before it ends: half a second after a report.
    atexit.register(gc.freeze)
    open_standard_streams()
    if sys.stderr.isatty():
        show_notices(lambda text: say(f"tracer: {text}"))
    try:
        with terminable():
            _run()
    except TracerError as error:
        if isinstance(error, Interrupted):
            _end_by_status()
        _complain(error.exit_code, str(error))
    except KeyboardInterrupt:
        _end_by_status()
        _complain(ExitCode.ABORTED, str(Interrupted()))
    except OSError as error:
        if isinstance(error, BrokenPipeError) and error.filename == STDOUT:
            sys.exit(ExitCode.FAILURE)  # the reader has read enough
        _complain(ExitCode.FAILURE, _said(error))
    except Exception as error:
        if isinstance(code := getattr(error, "exit_code", None), int):
            _complain(code, str(error))  # an error of another package's verb
        if os.environ.get("TRACER_DEBUG"):
            raise
        kind = type(error).__name__
        _complain(
            ExitCode.FAILURE,
            f"a bug in tracer ({kind}: {error}); "
            "please report it, with the output of TRACER_DEBUG=1",
        )


def _run() -> None:
    try:
        app()
    except SystemExit:
        sys.stdout.flush()  # An error of the interpreter's own flush would have no words.
        raise


def _said(error: OSError) -> str:
    """Returns what could not be used, why, and the mend if the error has no name of a file."""
    why = error.strerror or str(error)
    if error.filename == STDOUT:
        return f"{STDOUT}: {why}; write it to another file or device"
    if not error.filename and error.errno == errno.ENOENT and not _has_current_folder():
        return f"the current folder: {why}; it was deleted: change to one that exists (cd)"
    return f"{error.filename or 'system'}: {why}"


def _has_current_folder() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Runs the block with SIGTERM and SIGHUP as Ctrl-C, so that it removes its temporary files.

    Only the first of them interrupts: `timeout` and a closing terminal send two. Signals that were
    ignored at the start (nohup) stay ignored. Before and after the block, Ctrl-C may end the
    process without a word (`tracer.__main__`).
    """
    interrupt = FirstSignal()
    raising: dict[signal.Signals, Callable[..., object]] = {
        signal.SIGTERM: interrupt,
        signal.SIGHUP: interrupt,
        signal.SIGINT: signal.default_int_handler,
    }
    before = {number: signal.getsignal(number) for number in raising}

    ours = [number for number, handler in before.items() if handler != signal.SIG_IGN]
    for number in ours:
        signal.signal(number, raising[number])
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])


def _end_by_status() -> None:
    """Lets an interrupted process end with its exit status, and by no signal."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the second one of two
    # If Ctrl-C came while a text was executed (as dataclasses do), `python -m` would end by SIGINT.
    # The next executed text takes back Python's note of that (run_eval_code_obj in pythonrun.c).
    eval("0")


def _complain(code: int, text: str) -> None:
    """Prints one line on stderr, safe for any bytes in names, and exits with a code."""
    with contextlib.suppress(OSError):  # the terminal may be gone
        say(f"tracer: {text.replace(chr(10), ' ')}")
    sys.exit(code)


def one_of(names: Iterable[str]) -> str:
    """Returns "a, b or c" for a help text."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def named_path(name: str) -> Path:
    """Returns the path that an argument names. Raises UsageError if it is empty."""
    refuse_empty(name)
    return Path(name)


def written_path(what: str) -> Callable[[str], Path]:
    """Returns a parser of names of what is written, and not to standard output.

    `what` says what that is, as "a trace is a folder". The parser raises UsageError if the name is
    empty, or if it is the `-` that stands for standard output in other options.
    """

    def parse(name: str) -> Path:
        if name == "-":
            mend = "give its name (./- if that is the name)"
            raise UsageError(f"- stands for standard output, and {what}", mend)
        return named_path(name)

    return parse


A_TRACE, A_FOLDER = "a trace is a folder", "this is a folder"
"""Words of `written_path` for options that name a trace, or another folder."""


def say(text: str) -> None:
    """Prints one line on stderr, safe for any bytes in names."""
    typer.echo(printable(text), err=True)
