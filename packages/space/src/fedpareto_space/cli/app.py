"""`fedpareto space`: look into messages, see what two parties would agree on, print the conformance statement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from fedpareto.cli.allowing import Reading
from fedpareto.cli.console import AsJson, print_json, print_table
from fedpareto.config.errors import UserError
from fedpareto_space.cli import contacts, models, rehearse, schemes, simulate

if TYPE_CHECKING:
    from fedpareto_space.wire.messages import Accept, Counter, Message, Offer, Reject
    from fedpareto_space.wire.negotiation import Capabilities
    from fedpareto_space.wire.terms import Row

T = TypeVar("T")

app = typer.Typer(
    rich_markup_mode=None,
    invoke_without_command=True,
    help="Learning over space links: messages, agreements, conformance, models, contacts, missions.\n\n"
    "Example: fedpareto space agree offer.yaml capabilities.yaml",
)

EXAMPLE_SESSION = bytes(8)
"""Session of an offer that is only tried."""
SHORT = 40
"""Characters of a value that stay in one line."""
NO_AGREEMENT = 1
"""The exit code where two parties part."""


@app.callback()
def _space(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(help="A message: its bytes, or their hexadecimal digits.")],
    json: AsJson = False,
) -> None:
    """Print a message of the protocol: every field with its number, every row with its table.

    What is no message is refused with the reason.

    Example: fedpareto space inspect answer.flp
    """
    from fedpareto_space.wire import listing

    found = listing.lines(_message(file))
    if json:
        print_json([vars(line) for line in found])
        return
    _print_lines(
        [(line.number, line.name, _cell(line.value), line.note) for line in found],
        *("key", "field", "value", "what it is"),
    )


@app.command()
def conformance(json: AsJson = False) -> None:
    """Print the conformance statement: what of the protocol this package supports, item by item.

    M: an implementation must have it; O: it may.

    Example: fedpareto space conformance
    """
    from fedpareto_space.session.agreement import capabilities
    from fedpareto_space.wire.listing import statement
    from fedpareto_space.wire.vocabulary import Role

    found = statement(capabilities(1, Role.CLIENT))
    if json:
        print_json([vars(item) for item in found])
        return
    _print_lines(
        [(one.number, one.name, one.status, one.support) for one in found], "item", "what", "status", "support"
    )


@app.command()
def agree(
    offer: Annotated[Path, typer.Argument(help="What the proposer offers: alternatives for each row, in YAML.")],
    capabilities: Annotated[Path, typer.Argument(help="What the responder can do in each row, in YAML.")],
    proposer: Annotated[
        Path | None, typer.Option(help="What the proposer can do, with which it answers a counter-offer.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the last message to this file.")] = None,
    json: AsJson = False,
) -> None:
    """Show what two parties would agree on, or the row on which they part (exit code 1).

    Example: fedpareto space agree offer.yaml capabilities.yaml
    """
    from fedpareto.config.files import write_atomically
    from fedpareto.contract import registry
    from fedpareto_space.wire.messages import Accept, Counter, encode
    from fedpareto_space.wire.negotiation import Capabilities, negotiate, offer_of, settle

    proposed = _read(offer, lambda plain: offer_of(plain, EXAMPLE_SESSION))
    responder = _read(capabilities, Capabilities.from_plain)
    asked: Offer | Counter = proposed
    own = None if proposer is None else _read(proposer, Capabilities.from_plain)
    answer: Accept | Counter | Reject = negotiate(proposed, responder, registry.make_algorithm)
    if isinstance(answer, Counter) and own is not None:
        asked, responder = answer, own
        answer = settle(answer, own, registry.make_algorithm)
    if out is not None:
        write_atomically(out, encode(answer))
    if json:
        print_json(_as_plain(answer))
    else:
        _print_answer(asked, responder, answer)
    if not isinstance(answer, Accept):
        raise typer.Exit(NO_AGREEMENT)


app.command()(models.model)
app.command()(models.update)
app.command()(rehearse.rehearse)
app.command()(contacts.contacts)
app.command()(schemes.schemes)
app.command(cls=Reading)(simulate.simulate)
app.command()(simulate.look)


# -- reading -------------------------------------------------------------------------------------------------------


def _message(file: Path) -> Message:
    from fedpareto.config.files import read_bytes
    from fedpareto_space.wire.messages import decode
    from fedpareto_space.wire.refusals import ProtocolError

    content = _bytes_of(file, read_bytes(file))
    try:
        return decode(content, extensions=range(2**32))
    except ProtocolError as problem:
        raise UserError(f"{file} is refused, {problem.code.name}: {problem}") from None


def _bytes_of(file: Path, content: bytes) -> bytes:
    """The message itself, which is never text alone: an array of six begins with a byte above 127."""
    if not content.strip():
        raise UserError(f"{file} is empty; a message is its bytes, or their hexadecimal digits")
    if not content.isascii():
        return content
    digits = content.decode("ascii").strip().lower().removeprefix("0x")
    try:
        return bytes.fromhex(digits)
    except ValueError:
        raise UserError(f"{file} is text; a message is its bytes, or their hexadecimal digits such as 8682…") from None


def _read(file: Path, use: Callable[[dict[str, Any]], T]) -> T:
    """A YAML file, used; what is wrong with it comes with its name."""
    from fedpareto.spec import yaml_file

    plain, _ = yaml_file.read(file, "file", "node: 10")
    try:
        return use(plain)
    except UserError as problem:
        raise UserError(f"{file}: {problem}") from None


# -- printing ------------------------------------------------------------------------------------------------------


def _flow(value: Any) -> str:
    import yaml

    if value is None:
        return ""
    if isinstance(value, str):
        return value
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False, allow_unicode=True)
    return text.removesuffix("...\n").strip()


def _lines(value: Any, room: int = SHORT) -> list[str]:
    """A plain value in lines of YAML: what is short in one, of what is long each part in its own."""
    flow = _flow(value)
    if len(flow) <= room or not isinstance(value, list | dict):
        return [flow or "none"]
    found = list[str]()
    for name, one in value.items() if isinstance(value, dict) else (("-", part) for part in value):
        head = name if name == "-" else f"{name}:"
        first, *rest = _lines(one, room - len(head) - 1)
        below = [f"  {line}" for line in rest]
        found += [head, f"  {first}", *below] if rest and head != "-" else [f"{head} {first}", *below]
    return found


def _cell(value: Any) -> str:
    return "" if value is None else "\n".join(_lines(value))


def _print_lines(found: Sequence[tuple[str, ...]], *names: str) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table()
    for name in names:
        table.add_column(name, overflow="fold")  # A digest that is cut is of no use.
    for cells in found:
        table.add_row(*(escape(cell) for cell in cells))
    print_table(table)


def _as_plain(answer: Accept | Counter | Reject) -> dict[str, Any]:
    from fedpareto_space.wire.schema import to_plain

    return {"type": answer.type.name, "agreement": answer.agreement.hex() or None, **to_plain(answer)}


def _print_answer(offer: Offer | Counter, responder: Capabilities, answer: Any) -> None:
    from fedpareto_space.wire.messages import Accept, Counter
    from fedpareto_space.wire.refusals import NOWHERE
    from fedpareto_space.wire.terms import BY_PLACE, ROWS, listed

    both = f"node {offer.node} and node {responder.node}"
    if isinstance(answer, Accept):
        typer.echo(f"{both} agree; agreement {answer.agreement.hex()}")
        _print_rows([(row, row.kind.to_plain(answer.terms[row.place])) for row in ROWS])
    elif isinstance(answer, Counter):
        other = [row for row in ROWS if answer.rows[row.place] != offer.rows[row.place]]
        typer.echo(f"no agreement yet: node {responder.node} answers with a counter-offer, and proposes other rows:")
        _print_rows([(row, listed(row).to_plain(answer.rows[row.place])) for row in other])
        typer.echo("--proposer FILE says what the proposer can do, and answers it.")
    else:
        why = f"{answer.code.name.lower().replace('_', ' ')}" + (f": {answer.detail}" if answer.detail else "")
        row = BY_PLACE.get(answer.place)
        on = "" if row is None or answer.place == NOWHERE else f" on table {_row(row)} ({row.title})"
        typer.echo(f"{both} part{on}: {why}")
        if row is not None:
            _print_side(f"node {offer.node} offers", listed(row).to_plain(offer.rows[row.place]))
            _print_side(f"node {responder.node} can do", responder.accepts[row.place])


def _print_side(who: str, value: Any) -> None:
    first, *rest = _lines(value)
    typer.echo("\n    ".join([f"  {who}:", first, *rest]) if rest else f"  {who}: {first}")


def _print_rows(found: list[tuple[Row, Any]]) -> None:
    cells = [(_row(row), row.title, _cell(value)) for row, value in found]
    _print_lines(cells, "table, row", "what", "value")


def _row(row: Row) -> str:
    return f"6.{row.place[0]}, row {row.place[1]}"
