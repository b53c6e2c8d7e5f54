"""`fedpareto space contacts`: who sees whom when, as a table, as a plan for other programs, and as a picture."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedpareto.cli.console import AsJson, picture_kind, print_json, print_table, say
from fedpareto.config.errors import UserError

if TYPE_CHECKING:
    from fedpareto_space.orbits.circular import Orbits
    from fedpareto_space.orbits.plans import ContactPlan, Window
    from fedpareto_space.orbits.stations import Station

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
"""Start of a shell, unless said otherwise."""
OLD = 14
"""Days from the epoch of two-line elements after which the place along an orbit is off by tens of kilometres."""
EACH_OTHER = "each other"
"""The kind of contacts between satellites."""


@dataclass(frozen=True)
class _Shown:
    """A plan, and what it is of."""

    plan: ContactPlan
    seconds: float
    about: str
    dark: float | None = None
    """Share of the time that satellites are in the Earth's shadow."""


def contacts(
    station: Annotated[
        list[str] | None,
        typer.Option(help="A name such as svalbard, or latitude,longitude; with @5, its own mask. Several times."),
    ] = None,
    shell: Annotated[str, typer.Option(metavar="T/P/F", help="Walker shell: satellites/planes/phasing.")] = "40/5/1",
    altitude: Annotated[float, typer.Option(help="Altitude of the Walker shell, in km.")] = 530.0,
    inclination: Annotated[float, typer.Option(help="Inclination of the Walker shell, in degrees.")] = 97.5,
    star: Annotated[bool, typer.Option("--star", help="Spread the planes over 180° instead of 360°.")] = False,
    tle: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Read satellites from a two-line-element file instead of a shell."),
    ] = None,
    plan: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Read a finished plan, ION's text, instead of making one.")
    ] = None,
    mask: Annotated[float, typer.Option(help="Degrees above the horizon that stations need.")] = 10.0,
    start: Annotated[
        str | None,
        typer.Option(help="Start of the plan in UTC.  [default: 2026-01-01, or when the elements are newest]"),
    ] = None,
    hours: Annotated[float, typer.Option(help="Length of the plan, in hours.")] = 24.0,
    between: Annotated[bool, typer.Option("--between", help="Include contacts between satellites.")] = False,
    grazing: Annotated[
        float, typer.Option(help="Minimum height of a link between satellites above the ground, in km.")
    ] = 100.0,
    rate: Annotated[float, typer.Option(help="Rate of every contact, in bits a second.")] = 9600.0,
    route: Annotated[
        str | None,
        typer.Option(metavar="FROM,TO", help="Print the route on which a message arrives first, node by node."),
    ] = None,
    size: Annotated[int, typer.Option("--bytes", min=0, help="Size of the message for --route, in bytes.")] = 0,
    rows: Annotated[int, typer.Option(min=0, help="Contacts in the table; 0: all.")] = 20,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the plan as ION's text.")] = None,
    picture: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it: .png, .pdf or .svg.")] = None,
    json: AsJson = False,
) -> None:
    """Show when satellites see ground stations and each other; write the contact plan, draw it, find routes.

    Example: fedpareto space contacts --shell 24/3/1 --station svalbard --station redu --out plan.ion
    """
    from fedpareto.config.files import write_atomically
    from fedpareto_space.orbits import ion
    from fedpareto_space.orbits.circular import Shell
    from fedpareto_space.orbits.stations import stations
    from fedpareto_space.orbits.tle import read_tle

    kind = picture_kind(picture, "contacts.png")
    if plan is not None:
        if station or tle is not None:
            raise UserError("--plan is a finished plan; --station and --tle are for making one")
        shown = _finished(plan)
    else:
        sites = stations(_given(station), mask)
        if tle is not None:
            orbits: Orbits = (elements := read_tle(tle))
            begin = _moment(start) if start else _newest(elements.epoch)
            about = f"{len(orbits.names)} satellites of {tle}"
            _tell_age(elements.epoch, begin)
        else:
            begin = _moment(start) if start else NEW_YEAR
            orbits = Shell.parse(shell, altitude, inclination, star).orbits(begin)
            about = f"{len(orbits.names)} satellites ({shell}, {altitude:g} km, {inclination:g}°)"
        shown = _planned(orbits, sites, begin, 3600 * hours, rate, grazing if between else None, about)
    hops = None if route is None else _routed(shown.plan, route, size)
    if out is not None:
        write_atomically(out, ion.to_text(shown.plan.whole()))
    if picture is not None:
        write_atomically(picture, _drawn(shown, kind))
    if json:
        print_json({**_as_plain(shown), **({} if route is None else {"route": hops})})
        return
    _print(shown, rows)
    if route is not None:
        _print_route(shown.plan, hops, f"{route}, {size:,} bytes")
    if written := [str(file) for file in (out, picture) if file is not None]:
        typer.echo(f"written: {', '.join(written)}")


# -- making --------------------------------------------------------------------------------------------------------


def _given(station: list[str] | None) -> list[str]:
    from fedpareto_space.orbits.stations import KNOWN

    if not station:
        raise UserError(f"give --station with latitude,longitude such as 48.1,11.6, or one of: {', '.join(KNOWN)}")
    return station


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UserError(f"--start '{text}' is no moment; right is, say, 2026-01-31T12:00") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _newest(days: float) -> datetime:
    from fedpareto_space.orbits.earth import J2000

    return (J2000 + timedelta(days=days)).replace(second=0, microsecond=0)


def _tell_age(epoch: float, begin: datetime) -> None:
    """Two-line elements are good for days; what comes of old ones is told as such."""
    from fedpareto_space.orbits.earth import days_of

    days = abs(days_of(begin) - epoch)
    if days > OLD:
        say(f"the newest elements are {days:,.0f} days away from the start; beyond {OLD} days contacts are guesses")


def _planned(
    orbits: Orbits,
    sites: tuple[Station, ...],
    begin: datetime,
    seconds: float,
    rate: float,
    grazing: float | None,
    about: str,
) -> _Shown:
    from fedpareto_space.orbits.plans import Rates, plan
    from fedpareto_space.orbits.sights import GRAZING, eclipses, every_pair

    pairs = None if grazing is None else every_pair(len(orbits.names))
    rates = Rates(rate, rate, rate)
    made = plan(orbits, sites, begin, seconds, rates, pairs, GRAZING if grazing is None else grazing)
    dark = eclipses(orbits, begin, seconds)
    share = float((dark.ends - dark.starts).sum() / seconds / len(orbits.names))
    where = f"{len(sites)} station{'s' * (len(sites) > 1)}"
    whole = f"{about} and {where} from {begin.astimezone(UTC):%Y-%m-%d %H:%M} UTC, {seconds / 3600:g} h"
    return _Shown(made, seconds, whole, share)


def _finished(file: Path) -> _Shown:
    from fedpareto_space.orbits import ion

    found = ion.read(file)
    seconds = max(one.end for one in found.contacts)
    nodes = {node for one in found.contacts for node in (one.a, one.b)}
    return _Shown(found, seconds, f"{file}: {len(nodes)} nodes, {seconds / 3600:.1f} h")


# -- showing -------------------------------------------------------------------------------------------------------


def _print(shown: _Shown, rows: int) -> None:
    from rich.markup import escape
    from rich.table import Table

    from fedpareto_space.orbits.plans import ends, services, windows

    found, name = windows(shown.plan), shown.plan.name
    typer.echo(f"{shown.about}: {len(found)} contacts")
    table = Table("from", "until", "minutes", "node", "and")
    for one in found[: rows or None]:
        names = (escape(name(one.a)), escape(name(one.b)))
        table.add_row(_clock(one.start), _clock(one.end), f"{one.minutes:.1f}", *names)
    print_table(table)
    if 0 < rows < len(found):
        typer.echo(f"… and {len(found) - rows} more; --rows 0 shows all")
    table = Table("node", "hears", "contacts", "median minutes", "in contact", "longest wait")
    for of in services(found, ends(found), shown.seconds):
        wait = f"{of.longest_wait / 60:.1f} h"
        cells = (str(of.peers), str(of.contacts), f"{of.median:.1f}", f"{of.share:.0%}", wait)
        table.add_row(escape(name(of.node)), *cells)
    if table.row_count:
        print_table(table)
    if shown.dark is not None:
        typer.echo(f"satellites are in the Earth's shadow for {shown.dark:.0%} of the time")


def _clock(seconds: float) -> str:
    whole = round(seconds)
    return f"+{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"


def _print_route(plan: ContactPlan, hops: list[dict[str, float]] | None, about: str) -> None:
    typer.echo(f"no route: {about}; no contacts carry it within this plan" if hops is None else f"route: {about}")
    for hop in hops or ():
        sender, receiver = plan.name(int(hop["from"])), plan.name(int(hop["to"]))
        typer.echo(f"  {sender} sends at {_clock(hop['leaves'])}, {receiver} has it at {_clock(hop['arrives'])}")


def _routed(plan: ContactPlan, route: str, size: int) -> list[dict[str, float]] | None:
    from fedpareto_space.orbits.routes import Router

    source, comma, target = route.partition(",")
    if not comma:
        raise UserError(f"--route '{route}' names no two nodes; right is, say, 1,svalbard")
    first, last = plan.number(source.strip()), plan.number(target.strip())
    if first == last:
        raise UserError(f"--route '{route}' begins where it ends; name two nodes, such as 1,svalbard")
    found = Router(plan).route(first, last, size=size)
    if found is None:
        return None
    return [{"from": hop.contact.a, "to": hop.contact.b, "leaves": hop.leaves, "arrives": hop.arrives} for hop in found]


def _as_plain(shown: _Shown) -> dict[str, object]:
    from dataclasses import asdict

    from fedpareto_space.orbits.plans import ends, services, windows

    found = windows(shown.plan)
    return {
        "about": shown.about,
        "seconds": shown.seconds,
        "in_shadow": shown.dark,
        "names": {str(node): name for node, name in shown.plan.names.items()},
        "contacts": [asdict(one) for one in shown.plan.contacts],
        "stations": [asdict(one) for one in services(found, ends(found), shown.seconds)],
    }


# -- drawing -------------------------------------------------------------------------------------------------------


def _drawn(shown: _Shown, kind: str) -> bytes:
    from fedpareto_space.orbits.plans import ends, windows
    from fedpareto_space.report.gantt import Span, gantt, render

    found, name = windows(shown.plan), shown.plan.name
    last = ends(found)
    spans = list[Span]()
    for one in found:
        times = (one.start / 3600, one.end / 3600)
        if one.b in last:
            spans.append(Span(name(one.a), *times, name(one.b)))
        else:
            spans += [Span(name(node), *times, EACH_OTHER) for node in (one.a, one.b)]
    rows = [name(node) for node in sorted(_nodes(shown.plan, found) - set(last))]
    kinds = [name(node) for node in last] + [EACH_OTHER] * any(one.kind == EACH_OTHER for one in spans)
    spans.sort(key=lambda span: span.kind != EACH_OTHER)  # Stations are drawn over the long bars between satellites.
    return render(gantt(spans, rows, kinds, "hours"), kind)


def _nodes(plan: ContactPlan, found: list[Window]) -> set[int]:
    return set(plan.names) | {one.a for one in found} | {one.b for one in found}
