"""`fedpareto space rehearse`: figure 6.2 and a short federation on this machine."""

from __future__ import annotations

from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedpareto.cli.console import AsJson, Quiet, print_json
from fedpareto.cli.runs import Setting
from fedpareto.config.errors import UserError
from fedpareto.config.files import free_folder, quoted

if TYPE_CHECKING:
    from fedpareto_space.session.rehearsal import Rehearsal

NOT_GOOD = 1
"""The exit code where something is not as it should be."""


def rehearse(
    algorithm: Annotated[str, typer.Argument(help="Algorithm that the satellites train with.")] = "fedavg",
    problem: Annotated[str, typer.Option(help="Problem that they learn.")] = "synthetic",
    clients: Annotated[int, typer.Option(min=1, help="Number of satellites.")] = 3,
    rounds: Annotated[int, typer.Option(min=1, help="Number of rounds.")] = 3,
    loss: Annotated[float, typer.Option(help="Share of frames that the links lose.")] = 0.1,
    rate: Annotated[float, typer.Option(help="Rate of the links, in bits a second.")] = 64_000.0,
    codec: Annotated[str, typer.Option(help="Codec of updates: see docs/codecs.md.")] = "float32-delta",
    faults: Annotated[bool, typer.Option(help="Also try the fourteen faults of the failure matrix.")] = True,
    out: Annotated[
        Path | None,
        typer.Option(show_default="rehearsal, rehearsal-2, …", help="Folder for what is sent and what comes of it."),
    ] = None,
    settings: Setting = None,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Rehearse on this machine: a model is trained on the ground, packed, sent over a link that loses data, unpacked
    and run; then satellites learn together by the protocol, over the same kind of link.

    The exit code is 1 if a prediction differs by a bit, or a fault does not end in what was agreed.

    Example: fedpareto space rehearse fedpref --loss 0.3 --clients 4
    """
    from fedpareto.runs.progress import tallied
    from fedpareto.spec.draft import Draft
    from fedpareto_space.session.rehearsal import PAGE, Rehearsing

    flags = {"algorithm": algorithm, "problem": problem, "clients": clients, "rounds": rounds}
    spec = Draft().with_values(flags).with_settings(settings or []).finish()
    rehearsing = Rehearsing(spec, Path(), loss, rate, codec, faults)
    folder = rehearsing.folder = free_folder(Path(), "rehearsal") if out is None else _empty(out)
    tally = tallied("steps", rehearsing.steps, quiet or json)
    rehearsing.on_step = tally.one_more
    try:
        found = rehearsing.run()
    finally:
        tally.end()
    if json:
        print_json(asdict(found))
    else:
        _print(found)
        typer.echo(f"look at: {quoted(folder / PAGE)}")
    if not found.good:
        raise typer.Exit(NOT_GOOD)


def _empty(out: Path) -> Path:
    try:
        out.mkdir(parents=True, exist_ok=True)
        full = any(out.iterdir())
    except OSError as problem:
        raise UserError(f"--out {out} cannot be a folder: {problem.strerror or problem}") from None
    if full:
        raise UserError(f"{out} is not empty; choose another --out")
    return out


def _model(digest: str | None) -> str:
    if digest is None:
        return "it ended without a global model"
    alone = digest == sha256().hexdigest()  # Of no tensors at all.
    return "there is no global model, since clients learn alone" if alone else f"global model {digest}"


def _print(found: Rehearsal) -> None:
    model, learnt = found.delivered, found.federated
    typer.echo(
        f"model: {model.size:,} bytes packed, {model.sent:,} sent, {model.lost:,} of {model.packets:,} packets lost, "
        f"{model.seconds:.1f} simulated s"
    )
    same = "equal bit for bit" if model.predictions_equal and model.identical else "NOT equal"
    typer.echo(f"predictions on {model.rows} rows: {same}")
    counted = ", ".join(f"{count} {name}" for name, count in learnt.messages.items())
    typer.echo(f"federation: {learnt.algorithm}, {learnt.clients} clients, {learnt.rounds} rounds; {counted}")
    typer.echo(f"  {learnt.sent:,} bytes in {learnt.seconds:.1f} simulated s; {_model(learnt.digest)}")
    if learnt.reference:
        typer.echo(f"  the local engine has {'the same' if learnt.equal else f'another: {learnt.reference}'}")
    if found.faults:
        done = sum(found.faults.values())
        failed = [name for name, good in found.faults.items() if not good]
        typer.echo(
            f"faults: {done} of {len(found.faults)} ended as agreed{': not ' if failed else ''}{', '.join(failed)}"
        )
