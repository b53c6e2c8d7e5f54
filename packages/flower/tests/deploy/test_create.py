"""`server init`: everything that the parties need, each its own, and never over something that is there."""

from __future__ import annotations

import json
import ssl
import stat
from base64 import b64decode, b64encode

import pytest
import yaml

from fedpareto.config.errors import UserError
from fedpareto.spec.draft import Draft
from fedpareto_flower.deploy import certificates
from fedpareto_flower.deploy.create import create
from fedpareto_flower.deploy.layout import Deployment, NodeFolder

NODE_FILES = {
    "README.md",
    "node.json",
    "node.key",
    "ca.pem",
    "spec.yaml",
    "schema.json",
    "start.sh",
    "compose.yaml",
    "fedpareto-node.service",
}


def files(folder):
    return {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}


def test_secrets_can_be_read_by_their_owner_alone(deployment):
    for name, path in files(deployment.folder).items():
        if name.endswith(".key"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, name
    for folder in (deployment.folder, deployment.server, *(deployment.node(number) for number in range(3))):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_node_gets_its_own_key_and_nobody_elses(deployment):
    keys = {path.read_bytes() for name, path in files(deployment.folder).items() if name.endswith(".key")}
    assert len(keys) == 5  # Authority, server, three nodes.
    for number in range(3):
        folder = deployment.node(number)
        assert set(files(folder)) == NODE_FILES
        content = b"".join(path.read_bytes() for path in files(folder).values())
        assert sum(key in content for key in keys) == 1


def test_public_keys_belong_to_the_private_ones(deployment):
    for number in range(3):
        key = certificates.load_key(deployment.node(number) / "node.key")
        public = certificates.load_public(deployment.public_key(number))
        assert certificates.signer(certificates.signed(key), {public: number}) == number


def test_a_private_key_of_a_form_that_is_not_read_is_refused_by_name(deployment):
    path = deployment.node(0) / "node.key"
    first, *lines, last = path.read_bytes().splitlines()
    content = b64decode(b"".join(lines))
    curve = b"\0\0\0\x08nistp384"
    point = content.index(curve) + len(curve) + 4  # Behind its length; 4: whole, 2: compressed.
    assert content[point] == 4
    other = b64encode(content[:point] + b"\2" + content[point + 1 :])
    changed = path.with_name("changed.key")
    changed.write_bytes(b"\n".join([first, other, last, b""]))
    with pytest.raises(UserError, match=r"changed\.key is not a private key"):
        certificates.load_key(changed)
    changed.unlink()


def test_flower_takes_the_keys(deployment):
    from flwr.cli.supernode.register import try_load_public_key

    assert try_load_public_key(deployment.public_key(0)) == certificates.load_public(deployment.public_key(0))


def test_the_certificate_is_good_for_host_and_loopback_and_a_year(schema, tmp_path):
    from cryptography import x509

    deployment = create(tmp_path / "d", schema, Draft(), [], 1, "learn.example.org", 8443)
    certificate = x509.load_pem_x509_certificate((deployment.server / "server.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "learn.example.org"]
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    assert 364 < certificates.days_left(deployment.server / "server.pem") < 366
    ssl.create_default_context(cafile=deployment.authority)


def test_the_spec_keeps_preferences_private_and_the_schema_beside_it(deployment, tmp_path):
    written = yaml.safe_load((deployment.folder / "spec.yaml").read_text(encoding="utf-8"))
    assert written["preferences"] == "private"
    assert written["problem"]["schema"] == "schema.json"
    assert written["clients"] == 3
    moved = deployment.node(0).rename(tmp_path / "elsewhere")
    home = NodeFolder.open(moved)
    assert home.spec().problem.schema == str(moved / "schema.json")
    assert home.spec().problem.layout == deployment.spec().problem.layout
    assert home.spec().preferences_of(0) is None


def test_a_deployment_may_be_moved_while_its_run_is_stopped(deployment, tmp_path):
    before = deployment.spec().to_mapping()
    moved = Deployment.open(deployment.folder.rename(tmp_path / "elsewhere"))
    assert moved.spec().to_mapping() == before
    assert moved.spec().problem.table_schema == moved.spec().problem.table_schema.read(moved.folder / "schema.json")


def test_every_text_names_what_is_there(deployment):
    page = (deployment.folder / "README.md").read_text(encoding="utf-8")
    assert deployment.name in page
    for script in ("start-server.sh", "node-0/start.sh"):
        assert (deployment.folder / script).stat().st_mode & stat.S_IXUSR
    assert ".part" not in "".join(path.read_text(encoding="utf-8") for path in deployment.folder.glob("*.*"))


def test_nothing_is_written_over(deployment, schema):
    before = {name: path.read_bytes() for name, path in files(deployment.folder).items()}
    with pytest.raises(UserError, match="is there already"):
        create(deployment.folder, schema, Draft(), [], 3, "127.0.0.1", 8443)
    assert {name: path.read_bytes() for name, path in files(deployment.folder).items()} == before


@pytest.mark.parametrize(
    ("settings", "more", "words"),
    [
        (["lr=none"], {}, "lr"),
        (["clients=4"], {}, "--nodes"),
        (["preferences=uniform"], {}, "they are private"),
        (["file=x.csv"], {}, "the rows are at the nodes"),
        ([], {"nodes": 0}, "at least 1 and at most 10,000"),
        ([], {"host": "0.0.0.0"}, "not a wildcard"),
        ([], {"host": "a b"}, "name or the address"),
        ([], {"port": 70000}, "port is 70000"),
        ([], {"host": "192.0.2.1", "insecure": True}, "for loopback only"),
    ],
)
def test_a_mistake_leaves_nothing_behind(schema, tmp_path, settings, more, words):
    arguments = {"nodes": 3, "host": "127.0.0.1", "port": 8443, "insecure": False} | more
    with pytest.raises(UserError, match=words):
        create(tmp_path / "d", schema, Draft(), settings, **arguments)
    assert list(tmp_path.iterdir()) == []


def test_an_insecure_deployment_must_stay_on_loopback(schema, tmp_path):
    deployment = create(tmp_path / "d", schema, Draft(), [], 2, "localhost", 8443, insecure=True)
    assert not [name for name in files(deployment.folder) if name.endswith((".key", ".pem", ".pub"))]
    path = deployment.folder / "deployment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"host": "192.0.2.1"}))
    with pytest.raises(UserError, match="for loopback only"):
        Deployment.open(deployment.folder)


@pytest.mark.parametrize("content", ["", "{}", '{"format": 1}', "[]"])
def test_damaged_folders_are_refused(deployment, content):
    (deployment.folder / "deployment.json").write_text(content)
    with pytest.raises(UserError, match="damaged"):
        Deployment.open(deployment.folder)
    (deployment.node(0) / "node.json").write_text(content)
    with pytest.raises(UserError, match="damaged"):
        NodeFolder.open(deployment.node(0))


@pytest.mark.parametrize("nodes", [0, 10**12])
def test_a_number_of_nodes_that_cannot_be_is_damage_and_no_long_list(deployment, nodes):
    path = deployment.folder / "deployment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"nodes": nodes}))
    with pytest.raises(UserError, match=r"deployment\.json: nodes is .*; it is at least 1 and at most 10,000"):
        Deployment.open(deployment.folder)


def test_noise_that_everybody_can_compute_is_no_protection(schema, tmp_path):
    settings = ["privacy.kind=local", "algorithm=fedavg", "algorithm.weighting=equal"]
    with pytest.raises(UserError, match=r"privacy\.randomness=system"):
        create(tmp_path / "d", schema, Draft(), settings, 2, "127.0.0.1", 8443)
    assert not (tmp_path / "d").exists()
    create(tmp_path / "d", schema, Draft(), [*settings, "privacy.randomness=system"], 2, "127.0.0.1", 8443)


def test_a_node_keeps_a_budget_of_its_own_where_there_is_something_to_count(schema, tmp_path):
    settings = ["privacy.kind=local", "algorithm=fedavg", "algorithm.weighting=equal", "privacy.randomness=system"]
    create(tmp_path / "open", schema, Draft(), settings, 2, "127.0.0.1", 8443)
    create(tmp_path / "d", schema, Draft(), [*settings, "privacy.objectives=noised"], 2, "127.0.0.1", 8443)
    home = NodeFolder.open(tmp_path / "d" / "node-1")
    assert home.budget is None
    assert home.with_budget(2.5) == NodeFolder.open(home.folder)
    assert NodeFolder.open(home.folder).budget == 2.5
    with pytest.raises(UserError, match="budget is 0; it is above 0"):
        home.with_budget(0.0)
    with pytest.raises(UserError, match="no budget covers objectives without noise"):
        NodeFolder.open(tmp_path / "open" / "node-1").with_budget(2.5)
