"""Event files, judged by TensorBoard's own reader and by a second look at every checksum.

usage: test_events.py TEST_METRICS      the program of test_metrics.c, which writes the files
"""

import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile


def crc32c(data):
    """Castagnoli's, by long division of polynomials over GF(2), most significant bit first."""
    bits = 0
    for byte in data:
        bits = bits << 8 | int(f"{byte:08b}"[::-1], 2)
    length = 8 * len(data)
    bits = bits << 32 ^ 0xFFFFFFFF << length
    for i in range(length - 1, -1, -1):
        if bits >> (i + 32) & 1:
            bits ^= 0x11EDC6F41 << i
    return int(f"{bits ^ 0xFFFFFFFF:032b}"[::-1], 2)


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    data = path.read_bytes()
    while data:
        (length,) = struct.unpack_from("<Q", data)
        assert struct.unpack_from("<I", data, 8)[0] == masked(data[:8]), "checksum of a length"
        body, foot = data[12 : 12 + length], data[12 + length : 16 + length]
        assert struct.unpack("<I", foot)[0] == masked(body), "checksum of an event"
        yield body
        data = data[16 + length :]


def check_checksums(folder):
    assert crc32c(b"123456789") == 0xE3069283
    files = sorted(folder.iterdir())
    assert len(files) == 2, files
    counts = [sum(1 for _ in records(path)) for path in files]
    assert counts == [2 + 6, 2 + 1], counts
    for path in files:
        assert b"brain.Event:2" in next(records(path))


def check_raw(folder, loader):
    """The second file's first events: the version, then word that step 5 is done again."""
    first, start, scalars = list(loader.LegacyEventFileLoader(str(sorted(folder.iterdir())[1])).Load())
    assert first.file_version == "brain.Event:2" and first.wall_time > 1e9
    assert start.step == 5 and start.session_log.status == start.session_log.START
    assert [value.tag for value in scalars.summary.value] == ["train/loss", "train/bad"]


def check_scalars(run, accumulator):
    events = accumulator.EventAccumulator(str(run / "tensorboard"), purge_orphaned_data=True)
    events.Reload()
    wanted = {1: 1.0, 2: 0.0, 3: 1 / 3, 4: 0.25, 5: 10.2}  # 6 was forgotten
    if events.Tags()["scalars"]:
        found = {e.step: e.value for e in events.Scalars("train/loss")}
        bad = [e.value for e in events.Scalars("train/bad")]
    else:
        found = {e.step: e.tensor_proto.float_val[0] for e in events.Tensors("train/loss")}
        bad = [e.tensor_proto.float_val[0] for e in events.Tensors("train/bad")]
    assert found.keys() == wanted.keys(), found
    assert all(struct.pack("f", wanted[k]) == struct.pack("f", found[k]) for k in wanted), found
    assert all(math.isnan(value) for value in bad)


def check_lines(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5]
    assert lines[4]["loss"] == 10.2 and lines[4]["bad"] is None and lines[4]["list"] == [1, 2]


def main():
    with tempfile.TemporaryDirectory() as scratch:
        run = pathlib.Path(scratch) / "run"
        subprocess.run([sys.argv[1], str(run)], check=True)
        check_checksums(run / "tensorboard")
        check_lines(run)
        try:
            from tensorboard.backend.event_processing import event_accumulator, event_file_loader
        except ImportError:
            print("test_events: checksums are right; TensorBoard is not installed to read them")
            return 77
        check_raw(run / "tensorboard", event_file_loader)
        check_scalars(run, event_accumulator)
    print("test_events: TensorBoard reads what was written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
