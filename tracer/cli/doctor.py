"""`tracer doctor`."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import typer

from tracer.cli.opening import AsJson

if TYPE_CHECKING:
    from tracer.probes.doctor import Finding


_INDENT = " " * 9


def doctor(json: AsJson = False) -> None:
    """Check what this machine can trace, and tell how to fix what is missing.

    Exits with 0 if `tracer record` works, else with 3 (permission) or 5
    (feature).

    [bold]Example[/bold]

      tracer doctor --json | jq '.checks[] | select(.ok | not)'
    """
    from tracer.probes.doctor import check, this_user, verdict

    found = [*check(), *_engines()]
    code = verdict(found)
    if json:
        from tracer.store.trace import dump

        typer.echo(
            dump(
                {
                    "can_record": int(code) == 0,
                    "this_user": this_user(found).found,
                    "checks": [
                        {
                            "name": f.name,
                            "ok": f.ok,
                            "needed_for": f.needed_for,
                            "found": f.found,
                            "mend": f.mend,
                        }
                        for f in found
                    ],
                }
            )
        )
        raise typer.Exit(int(code))
    from tracer.cli.output import console, safe

    out = console()
    user = this_user(found)
    for f in found:
        mark = "ok     " if f.ok else "missing"
        said = [f"This user: {f.found}"]
        if f is not user:
            said = textwrap.wrap(
                f"{mark}  {f.name}: {f.found}",
                out.width,
                subsequent_indent=_INDENT,
                break_long_words=False,
                break_on_hyphens=False,
            )
        for line in said:
            out.print(safe(line), style=None if f.ok else "red", soft_wrap=True)
        if not f.ok:
            out.print(safe(f"{_INDENT}for {f.needed_for}; fix: {f.mend}"), soft_wrap=True)
    if int(code) == 0:
        out.print("tracer record works here.")
    else:
        out.print("tracer record records only marks and samples here: fix what is missing above.")
    raise typer.Exit(int(code))


def _engines() -> list[Finding]:
    """Returns the engines of containers that are on the machine beside Docker."""
    from tracer.probes.doctor import Finding
    from tracer.targets.engines import DOCKER, chosen

    found = []
    for engine in chosen("auto"):
        if engine.name != DOCKER and engine.found():
            running = sum(bool(facts["pid"]) for facts in engine.present())
            what = f"{running} containers run" if running != 1 else "1 container runs"
            found.append(Finding(engine.name, True, what, "containers"))
    return found
