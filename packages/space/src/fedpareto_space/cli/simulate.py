"""`fedpareto space simulate` and `look`: a mission is run, and its page is written."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedpareto.cli.allowing import reads_data
from fedpareto.cli.console import AsJson, Quiet, print_json
from fedpareto.cli.runs import RunPath, Setting, watched
from fedpareto.config.errors import UserError
from fedpareto.config.files import free_folder, quoted

if TYPE_CHECKING:
    from fedpareto.runs.progress import OnBegin
    from fedpareto.spec.draft import Draft
    from fedpareto.spec.spec import Spec
    from fedpareto_space.report.mission import Mission
    from fedpareto_space.wire.terms import Terms

MISSION = "mission"
AGREEMENT = "agreement.yaml"
"""In a run's folder: what its parties agreed on."""
STAR = ("direct", "relay")
"""Routes on which there is one server and its clients, as a session has them."""
KINDS = ("png", "pdf")


@reads_data
def simulate(
    mission: Annotated[Path, typer.Argument(metavar="MISSION", help="A YAML file: what any run has, and an engine.")],
    out: Annotated[
        Path | None, typer.Option(help="The run's folder.  [default: runs/NAME of the file]", show_default=False)
    ] = None,
    settings: Setting = None,
    agreement: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Run as agreed: an agreement.yaml, or what 'space agree --out' wrote."),
    ] = None,
    page: Annotated[bool, typer.Option("--page/--no-page", help="Whether to write the mission's page.")] = True,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Simulate a mission: satellites learn together, and messages travel when somebody is in sight.

    The file is a spec as of 'fedpareto run', whose engine is 'mission' unless it says so itself. What happened is in a
    folder as of any run, with a page to look at; Ctrl-C stops after a round, and fedpareto resume continues.

    Example: fedpareto space simulate mission.yaml --set hours=24 --set engine.stations=svalbard,troll
    """
    from fedpareto.runs.runner import start

    draft = _as_mission(mission).with_settings(settings or [])
    _must_be_mission(draft, mission)
    spec, terms = _agreed(draft.finish(), None if agreement is None else _agreement(agreement))
    folder = out or free_folder(Path("runs"), mission.stem)
    try:
        with watched(spec, folder, quiet or json) as hooks:
            start(spec, folder, **hooks | {"on_begin": _keeping(terms, folder, hooks["on_begin"])})
    finally:
        if out is None:  # As in 'run': a mission that could not begin leaves nothing behind.
            with suppress(OSError):
                folder.rmdir()
                folder.parent.rmdir()
    _tell(folder, page, json)


def look(
    run: RunPath,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the page goes.  [default: mission.html in the folder]")
    ] = None,
    pictures: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Also write every figure into this folder.")
    ] = None,
    format: Annotated[str, typer.Option(metavar="png|pdf", help="Format of the pictures.")] = "png",
    json: AsJson = False,
) -> None:
    """Write the page of a mission, RUN being its folder, also while it goes on; and its figures as pictures.

    Example: fedpareto space look runs/mission --pictures figures --format pdf
    """
    from fedpareto_space.report.mission import read_mission
    from fedpareto_space.report.mission_page import PAGE, write_page, write_pictures

    if format not in KINDS:
        raise UserError(f"--format {format} is of no known kind; right is {' or '.join(KINDS)}")
    found = read_mission(run)
    where = write_page(found, out or run / PAGE)
    drawn = [] if pictures is None else write_pictures(found, pictures, format)
    if json:
        print_json(
            {**asdict(found.summary), "folder": str(run), "page": str(where), "pictures": [str(one) for one in drawn]}
        )
        return
    _print(found)
    typer.echo(f"page: {where}" + (f"   pictures: {len(drawn)} in {pictures}" if drawn else ""))


# -- the mission ---------------------------------------------------------------------------------------------------


def _as_mission(file: Path) -> Draft:
    """The file, with the engine `mission` where it names none."""
    from fedpareto.spec.draft import Draft

    draft = Draft.read(file)
    return draft.with_section("engine", {"name": MISSION}) if _engine(draft) is None else draft


def _engine(draft: Draft) -> object:
    given = draft.values.get("engine")
    return given.get("name") if isinstance(given, dict) else given


def _must_be_mission(draft: Draft, file: Path) -> None:
    """Before anything else is found to be wrong with a file that was never meant to be one."""
    if _engine(draft) != MISSION:
        raise UserError(
            f"{file} has the engine {_engine(draft)}; a mission's is {MISSION}: leave its name out, or run the file "
            "with 'fedpareto run --spec'"
        )


def _agreement(file: Path) -> Terms:
    """From YAML, or from the message with which a party accepted it."""
    from fedpareto.config.files import read_bytes
    from fedpareto.spec import yaml_file
    from fedpareto_space.wire.messages import Accept, decode
    from fedpareto_space.wire.terms import Terms

    content = read_bytes(file, "the agreement ")
    try:
        if content[:1].isascii():
            return Terms.from_plain(yaml_file.read(file, "agreement", "client: …")[0])
        message = decode(content)
    except UserError as problem:
        raise UserError(str(problem) if str(file) in str(problem) else f"{file}: {problem}") from None
    if not isinstance(message, Accept):
        raise UserError(f"{file} is a message {message.type.name}; an agreement is an ACCEPT, or YAML")
    return message.terms


def _agreed(spec: Spec, terms: Terms | None) -> tuple[Spec, Terms | None]:
    """The run as agreed and what was agreed, or the usual agreement where the run can have one."""
    from fedpareto_space.session.agreement import agreement_of, as_agreed

    route = getattr(spec.engine, "route", "")
    if terms is None:
        return spec, agreement_of(spec) if route in STAR else None
    if route not in STAR:
        raise UserError(f"--agreement is for the routes {' and '.join(STAR)}, which have one server; this is {route}")
    return as_agreed(spec, terms), terms


def _keeping(terms: Terms | None, folder: Path, begin: OnBegin) -> OnBegin:
    """Puts on record what was agreed as soon as the folder is there, so that a mission that is stopped has it too."""
    from fedpareto.config.files import write_atomically
    from fedpareto.spec import yaml_file

    def begun(done: int) -> None:
        if terms is not None:
            about = f"# What the parties of this mission agreed on: tables 6.2 and 6.3; its id is {terms.id.hex()}.\n"
            write_atomically(folder / AGREEMENT, about + yaml_file.text_of(terms.to_plain()))
        begin(done)

    return begun


# -- what came of it -----------------------------------------------------------------------------------------------


def _tell(folder: Path, page: bool, json: bool) -> None:
    from fedpareto_space.report.mission import read_mission
    from fedpareto_space.report.mission_page import PAGE, write_page

    found = read_mission(folder)
    where = write_page(found, folder / PAGE) if page else None
    if json:
        print_json({**asdict(found.summary), "folder": str(folder), "page": None if where is None else str(where)})
        return
    _print(found)
    look_at = f"   look at: {quoted(where)}" if where is not None else ""
    typer.echo(f"run: {quoted(folder)}{look_at}")


def _print(mission: Mission) -> None:
    from fedpareto_space.report.mission_page import facts

    told = facts(mission.summary)
    wide = max(map(len, told))
    for name, value in told.items():
        typer.echo(f"{name:{wide}}  {value}")
    for name, times in mission.summary.faults.items():
        typer.echo(f"{'':{wide}}  {times} × {name}")
