"""`fedpareto space`: messages for people, what two parties would agree on, the conformance statement."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path

import pytest
import yaml

from fedpareto_space.wire import golden
from fedpareto_space.wire.messages import MESSAGES, Accept, Counter, decode, encode
from fedpareto_space.wire.terms import ROWS

OFFER = {"node": 10, "role": "server", **golden.alternatives().to_plain()}
CAPABILITIES = {
    "node": 20,
    "role": "client",
    "accepts": {
        "client": {row.name: "any" for row in ROWS if row.side == "client"},
        "server": {row.name: "any" for row in ROWS if row.side == "server"},
    },
}


def written(name, plain):
    Path(name).write_text(yaml.safe_dump(plain, sort_keys=False), encoding="utf-8")
    return name


@pytest.fixture
def agree(fedpareto):
    """`space agree` with the responder's rows changed."""

    def call(*options, proposals=None, **rows):
        capabilities = copy.deepcopy(CAPABILITIES)
        capabilities["accepts"]["client"] |= rows
        if proposals:
            capabilities["proposals"] = proposals
        files = written("offer.yaml", OFFER), written("capabilities.yaml", capabilities)
        return fedpareto("space", "agree", *files, *options)

    return call


def test_two_parties_that_suit_each_other_agree_and_the_answer_can_be_inspected(agree, fedpareto):
    answer = agree("--out", "answer.flp")
    assert answer.code == 0, answer.err
    assert answer.out.startswith(f"node 10 and node 20 agree; agreement {golden.terms().id.hex()}\n")
    assert all(row.title in answer.out for row in ROWS)
    assert decode(Path("answer.flp").read_bytes()).terms == golden.terms()
    shown = fedpareto("space", "inspect", "answer.flp")
    assert shown.code == 0
    for row in ROWS:
        assert f"6.{row.place[0]}.{row.place[1]}" in shown.out


def test_parties_that_part_are_told_the_row(agree):
    answer = agree(topology="ring")
    assert (answer.code, answer.err) == (1, "")
    assert answer.out.splitlines() == [
        "node 10 and node 20 part on table 6.2, row 1 (System topology): not supported",
        "  node 10 offers: [star, {hierarchical: 2}]",
        "  node 20 can do: ring",
    ]
    plain = json.loads(agree("--json", topology="ring").out)
    assert (plain["type"], plain["code"], plain["table"], plain["row"]) == ("REJECT", "not-supported", 2, 1)


def test_rows_with_many_fields_have_a_line_for_each(agree):
    """In a pipe the table of an agreement was 320 characters wide, with paragraphs in braces."""
    shown = agree("--out", "answer.flp").out
    assert "on-low-power: pause" in {line.rstrip("│ ").rpartition("│ ")[2] for line in shown.splitlines()}
    assert max(map(len, shown.splitlines())) <= 130  # as wide as a digest in hexadecimal digits makes it
    parted = agree(format={"codec": "int4-delta"}).out
    assert "    - content: difference" in parted
    assert max(map(len, parted.splitlines()[1:])) <= 80


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"role": "server"}, "a server and a server do not fit; right are a client and a server, or two peers"),
        ({"role": "peer"}, "a server and a peer do not fit"),
        ({"node": 10}, "both are node 10; every node has a number of its own"),
    ],
)
def test_parties_that_cannot_be_two_are_told_so(other, words, fedpareto):
    files = written("offer.yaml", OFFER), written("capabilities.yaml", {**CAPABILITIES, **other})
    answer = fedpareto("space", "agree", *files)
    assert answer.code == 1
    assert words in answer.out


def test_an_unknown_rule_comes_with_the_closest(agree, monkeypatch):
    monkeypatch.setitem(OFFER["server"]["aggregation"][0], "rule", "fedagv")
    answer = agree()
    assert answer.code == 1
    assert "part on table 6.3, row 1 (Global aggregation behaviour): unknown rule" in answer.out
    assert "did you mean 'fedavg'?" in answer.out


def test_a_counter_offer_is_shown_and_answered_by_what_the_proposer_can_do(agree):
    proposals = {"client": {"waiting": ["continue"]}}
    answer = agree("--out", "counter.flp", proposals=proposals, waiting="continue")
    assert answer.code == 1
    assert "counter-offer" in answer.out
    assert "6.2, row 4" in answer.out
    assert isinstance(decode(Path("counter.flp").read_bytes()), Counter)
    own = written("own.yaml", {**CAPABILITIES, "node": 10, "role": "server"})
    settled = agree("--proposer", own, "--out", "answer.flp", proposals=proposals, waiting="continue")
    assert settled.code == 0
    assert isinstance(decode(Path("answer.flp").read_bytes()), Accept)


@pytest.mark.parametrize("name", golden.every())
def test_every_message_can_be_inspected_as_bytes_and_as_digits(name, fedpareto):
    data = encode(golden.every()[name])
    Path("message.flp").write_bytes(data)
    Path("message.hex").write_text("\n".join([f"0x{data.hex()[:50]}", data.hex()[50:]]), encoding="ascii")
    answer = fedpareto("space", "inspect", "message.flp")
    assert answer.code == 0, answer.err
    assert name.upper() in answer.out
    assert answer == fedpareto("space", "inspect", "message.hex")


def test_a_narrow_terminal_cuts_no_digest(fedpareto, monkeypatch):
    """At 80 columns, the last half of a model's SHA-256 was three dots."""
    message = golden.every()["global"]
    Path("global.flp").write_bytes(encode(message))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", fedpareto("space", "inspect", "global.flp").out)
    assert max(map(len, shown.splitlines())) <= 80
    values = "".join(line.split("│")[3].strip() for line in shown.splitlines() if line.startswith("│"))
    assert message.model_digest.hex() in values


def test_a_rehearsal_without_a_global_model_does_not_print_the_digest_of_nothing():
    from fedpareto_space.cli.rehearse import _model

    assert _model(golden.every()["global"].model_digest.hex()).startswith("global model b1290cd4")
    assert "learn alone" in _model("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    assert "without a global model" in _model(None)


def test_inspect_says_whether_a_payload_is_damaged(fedpareto):
    data = encode(golden.every()["update"])
    Path("update.flp").write_bytes(data)
    assert "it has its digest" in fedpareto("space", "inspect", "update.flp").out
    payload = golden.every()["update"].payload
    Path("update.flp").write_bytes(data.replace(payload, payload[:-1] + b"\1"))
    assert "it is damaged" in fedpareto("space", "inspect", "update.flp").out


def test_the_conformance_statement_names_every_message_and_row(fedpareto):
    answer = fedpareto("space", "conformance", "--json")
    items = {item["number"]: item for item in json.loads(answer.out)}
    for kind in MESSAGES:
        assert items[f"M.{int(kind)}"]["name"].startswith(kind.name)
    for row in ROWS:
        assert row.title in items[f"6.{row.place[0]}.{row.place[1]}"]["name"]
    assert items["6.2.6 content"]["support"] == "weights, difference, per-objective-differences"
    assert "E.1" in fedpareto("space", "conformance").out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["inspect", "absent.flp"], "absent.flp cannot be read"),
        (["inspect", "short.flp"], "short.flp is refused, TRUNCATED: the message ends early"),
        (["inspect", "."], "cannot be read"),
        (["inspect", "list.yaml"], "list.yaml is text; a message is its bytes, or their hexadecimal digits"),
        (["inspect", "empty.flp"], "empty.flp is empty; a message is its bytes, or their hexadecimal digits"),
        (["agree", "offer.yaml", "bound.yaml"], "{'mots': 5} is no pattern for a whole number"),
        (["agree", "offer.yaml", "bound.yaml"], "right is, say, {least: 1, most: 500}"),
        (["agree", "list.yaml", "good.yaml"], "list.yaml, line 1: a file is a list of 'key: value' lines"),
        (["agree", "good.yaml", "good.yaml"], "good.yaml: unknown field 'accepts'"),
        (
            ["agree", "typo.yaml", "good.yaml"],
            "typo.yaml: client: topology: unknown form 'strar'; did you mean 'star'?",
        ),
        (["agree", "offer.yaml", "role.yaml"], "role.yaml: role: unknown word 'clinet'; did you mean 'client'?"),
        (["agre", "offer.yaml"], "unknown command 'agre'; did you mean 'agree'?"),
        (["agree", "offer.yaml"], "CAPABILITIES"),
        (["model", ".", "--out", "nnef", "--apart"], "--apart is for ONNX; in NNEF every weight has a file of its own"),
    ],
)
def test_a_mistake_is_one_line(arguments, words, fedpareto):
    Path("short.flp").write_bytes(encode(golden.every()["close"])[:-3])
    Path("list.yaml").write_text("- 1\n", encoding="utf-8")
    written("good.yaml", CAPABILITIES)
    written("offer.yaml", OFFER)
    Path("empty.flp").write_bytes(b"")
    rows = {**CAPABILITIES["accepts"]["client"], "trigger": {"steps": {"mots": 5}}}
    written("bound.yaml", {**CAPABILITIES, "accepts": {**CAPABILITIES["accepts"], "client": rows}})
    written("role.yaml", {**CAPABILITIES, "role": "clinet"})
    written("typo.yaml", {**OFFER, "client": {**OFFER["client"], "topology": ["strar"]}})
    answer = fedpareto("space", *arguments)
    assert answer.code == 2
    assert answer.err.startswith("Error: ")
    assert answer.err.count("\n") == 1
    assert words in answer.err


def test_help_has_examples_that_run(fedpareto):
    written("offer.yaml", OFFER)
    written("capabilities.yaml", CAPABILITIES)
    Path("answer.flp").write_bytes(encode(golden.every()["accept"]))
    for command in ("agree", "inspect", "conformance"):
        help_text = fedpareto("space", command, "--help").out
        example = next(line for line in help_text.splitlines() if "Example: fedpareto" in line)
        answer = fedpareto(*example.split()[2:])
        assert answer.code == 0, answer.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--out", "a-file"], "--out a-file cannot be a folder: "),
        (["--out", "a-file/inside"], "--out a-file/inside cannot be a folder: Not a directory"),
        (["--out", "full"], "full is not empty; choose another --out"),
        (["--loss", "1"], "loss is 1; it is at least 0 and below 1"),
    ],
)
def test_a_rehearsal_that_cannot_begin_is_one_line_and_leaves_no_folder(options, words, fedpareto):
    Path("a-file").write_text("", encoding="utf-8")
    Path("full/of/something").mkdir(parents=True)
    answer = fedpareto("space", "rehearse", "--no-faults", *options)
    assert answer.code == 2
    assert answer.err.startswith(f"Error: {words}")
    assert answer.err.count("\n") == 1
    assert not Path("rehearsal").exists()
