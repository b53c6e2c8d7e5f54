"""Files that CFDP reads and writes: by offset, on disks that are full, damaged or far too small."""

from __future__ import annotations

from entity_pair import Pair
from fedpareto_space.links.managed import Managed
from fedpareto_space.links.pdus import Condition, FileData, Header, Metadata, Nak, Prompt, encode
from fedpareto_space.links.stores import BytesSink, BytesSource, FileSink, FileSource

DATA = bytes(range(256)) * 4


class Damaging(BytesSink):
    """Storage, or a checksum of frames, that lets one damaged segment through unseen."""

    damaged = 0

    def write(self, offset, data):
        Damaging.damaged += 1
        super().write(offset, data[::-1] if Damaging.damaged == 4 else data)


def test_damage_that_a_frame_does_not_show_is_found_by_the_file_and_the_file_asked_for_anew():
    Damaging.damaged = 0
    pair = Pair(open_sink=lambda transaction: Damaging())
    pair.send(DATA)
    pair.run()
    assert pair.files == [DATA]
    assert pair.open == 0
    assert len(pair.of(FileData)) == 22


class Wrong(BytesSink):
    """Storage that never gives back what was written."""

    def read(self, offset, length):
        return bytes(length)


def test_a_file_that_stays_damaged_is_a_checksum_failure_at_both_ends():
    pair = Pair(open_sink=lambda transaction: Wrong())
    pair.send(DATA)
    pair.run()
    assert pair.ends(1) == pair.ends(2) == [Condition.FILE_CHECKSUM_FAILURE]
    assert pair.files == []


class Full(BytesSink):
    """A disk with no room."""

    def write(self, offset, data):
        raise OSError


def test_a_full_disk_is_told_to_the_sender():
    pair = Pair(open_sink=lambda transaction: Full())
    pair.send(DATA)
    pair.run()
    assert pair.ends(1) == pair.ends(2) == [Condition.FILESTORE_REJECTION]


class Endless:
    """A file that is longer than any memory, made where it is read; written parts are only checked."""

    size = 2**40

    def read(self, offset, length):
        return (offset // 100 % 2**32).to_bytes(4, "big") * (length // 4)


class Checked(BytesSink):
    """Keeps no bytes, but sees that they are right."""

    def write(self, offset, data):
        assert data == Endless().read(offset, len(data))


def test_files_are_read_and_written_by_offset_so_that_they_may_be_larger_than_memory():
    pair = Pair(Managed(segment=100, largest_pdu=200, largest_file=2**41), open_sink=lambda transaction: Checked())
    transaction = pair.one.put(2, Endless(), 0.0)
    for _ in range(300):
        pair._carry(pair.one.pull(2, 0.0)[0], pair.one, pair.two)
    assert pair.of(Metadata)[0].size == 2**40  # eight bytes
    far = Header(1, 1, 2, large=True)
    pair.two.receive(encode(far, FileData(2**39, Endless().read(2**39, 100))), 0.0)
    pair.two.receive(encode(far, Prompt(False)), 0.0)
    nak = encode(far, Nak(0, 2**39 + 100, ((29_900, 2**39),)))
    assert pair.two.pull(1, 0.0)[0] == nak
    pair.one.cancel(transaction, 0.0)
    pair.run()
    assert pair.open == 0


def test_files_on_a_disk_arrive_under_their_name_only_when_they_are_complete(tmp_path):
    (tmp_path / "sent").write_bytes(DATA)
    pair = Pair(
        open_sink=lambda transaction: FileSink(tmp_path / f"got-{transaction[1]}"),
        fate=lambda pdu, count: not isinstance(pdu, FileData) or count != 1,
    )
    source = FileSource(tmp_path / "sent")
    pair.one.put(2, source, 0.0)
    pair.run()
    second = pair.one.put(2, source, 0.0)
    for _ in range(4):
        pair._carry(pair.one.pull(2, 0.0)[0], pair.one, pair.two)
    pair.one.cancel(second, pair.now)
    pair.run()
    source.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["got-1", "sent"]
    assert (tmp_path / "got-1").read_bytes() == DATA


def test_a_file_that_shrinks_while_it_is_sent_is_rejected_by_name():
    class Shrinking(BytesSource):
        def read(self, offset, length):
            return super().read(offset, length) if offset < 300 else b""

    pair = Pair()
    pair.one.put(2, Shrinking(DATA), 0.0)
    pair.run()
    assert pair.ends(1) == pair.ends(2) == [Condition.FILESTORE_REJECTION]


def test_what_is_larger_than_allowed_is_refused_before_it_fills_the_memory():
    pair = Pair(Managed(segment=100, largest_pdu=200, largest_file=1000))
    pair.send(DATA)
    pair.run()
    assert pair.ends(1) == pair.ends(2) == [Condition.FILE_SIZE_ERROR]
