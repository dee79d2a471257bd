"""Measurements that are cut off go on where they stopped, and a table is kept if it is asked for."""

from __future__ import annotations

import json
from functools import partial

import pytest

from cutetut.course import provenance
from cutetut.measure import bench, journal
from tests.facts import FACTS
from tests.measure.conftest import ROW, FakeTimer

COMPARES = """
sizes = (128, 256, 128)


def benchmark():
    rows = []
    for M in sizes:
        rows += bench.compare(lambda: "ours", lambda: "vendor", flops=2e9, size={"M": M}, vendor_name="cuBLAS")
    return rows
"""


@pytest.fixture
def compared(benched, monkeypatch):
    """A notebook with three comparisons, two of them alike, and the sizes measured; it is cut off behind the first."""
    done: list[int] = []

    def measure(ours, vendor, *, labels, **settings):
        if labels["M"] == 256 and len(done) == 1:
            raise KeyboardInterrupt
        done.append(labels["M"])
        return [{**ROW, **labels, "ours_us": float(len(done))}]

    monkeypatch.setattr(bench, "measure", measure)
    monkeypatch.setattr(bench, "CudaTimer", lambda: None)
    benched(f"from cutetut.measure import bench\n{COMPARES}")
    return done


def test_a_measurement_that_was_cut_off_goes_on_where_it_stopped(compared, project, capsys):
    with pytest.raises(KeyboardInterrupt):
        bench.run("04_a")
    assert compared == [128] and not (project / "book" / "data" / "04_a.json").exists()
    (kept,) = (project / ".cache" / "measured").iterdir()
    kept.write_text(kept.read_text() + '["cut o')
    compared.append(0)  # so that it is not cut off again
    content = json.loads(bench.run("04_a").read_text())
    assert compared == [128, 0, 256, 128], "the first is not measured again, the other of its size is"
    assert [row["ours_us"] for row in content["rows"]] == [1.0, 3.0, 4.0]
    said = capsys.readouterr().out
    assert f"comparisons taken over from a run that was cut off: 1; to measure them again, delete {kept}" in said
    assert not kept.exists()


def test_what_a_table_has_is_kept_if_it_is_asked_for(benched, monkeypatch, capsys):
    """Of three sizes and then four; of other windows, operations, vendors, code or machines nothing is kept."""
    monkeypatch.setattr(bench, "_hash", lambda chapter: "the same")
    source = f"from cutetut.measure import bench\n{COMPARES}"
    several = source.replace('lambda: "vendor"', '{"torch": lambda: "vendor"}').replace('vendor_name="cuBLAS"', "")
    for first, then, kept in (
        (source, source.replace("(128, 256, 128)", "(64, 128, 256, 512)"), 2),
        (several, several.replace("(128, 256, 128)", "(128, 128, 128)"), 2),
        (source, source.replace("2e9", "3e9"), 0),
        (source, source.replace("2e9", "2e9, seconds=0.4"), 0),
        (source, source.replace("cuBLAS", "cuDNN"), 0),
        (source, several, 0),
    ):
        monkeypatch.setattr(bench, "CudaTimer", FakeTimer)
        benched(first)
        before = json.loads(bench.run("04_a").read_text())["rows"]
        monkeypatch.setattr(bench, "CudaTimer", partial(FakeTimer, ours=4e-3))
        benched(then)
        after = json.loads(bench.run("04_a", keep=True).read_text())["rows"]
        assert f"comparisons kept from the table: {kept}\n" in capsys.readouterr().out
        assert sum(row in before for row in after) == 2 * kept
    for module, name, value in ((bench, "_hash", "another"), (provenance, "collect", FACTS | {"driver": "590.1"})):
        benched(source)
        bench.run("04_a")
        with monkeypatch.context() as patched:
            patched.setattr(module, name, lambda *_, value=value: value)
            bench.run("04_a", keep=True)
        assert "comparisons kept from the table: 0\n" in capsys.readouterr().out


def test_what_is_written_behind_a_line_that_was_cut_off_is_not_lost(tmp_path):
    """As where a measurement is cut off a second time."""
    path, of = tmp_path / "a.jsonl", {"code": 1}
    journal.Journal(path, of).add({"M": 1}, [ROW])
    for M in (2, 3):
        path.write_text(path.read_text() + '["cut o')
        journal.Journal(path, of).add({"M": M}, [ROW])
    again = journal.Journal(path, of)
    assert [again.take({"M": M}) for M in (1, 2, 3, 3)] == [[ROW], [ROW], [ROW], None]


@pytest.mark.parametrize("what", ["code", "machine", "damaged"])
def test_what_was_measured_of_other_code_or_elsewhere_is_not_taken_over(
    compared, benched, project, monkeypatch, capsys, what
):
    with pytest.raises(KeyboardInterrupt):
        bench.run("04_a")
    (kept,) = (project / ".cache" / "measured").iterdir()
    if what == "code":
        benched(f"from cutetut.measure import bench\n{COMPARES}# edited\n")
    elif what == "machine":
        monkeypatch.setattr(provenance, "collect", lambda: FACTS | {"driver": "590.1"})
    else:
        kept.write_text("\0" + kept.read_text())
    compared.append(0)
    bench.run("04_a")
    assert compared == [128, 0, 128, 256, 128] and "taken over" not in capsys.readouterr().out


def test_another_day_does_not_matter(compared, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        bench.run("04_a")
    monkeypatch.setattr(provenance, "collect", lambda: FACTS | {"date": "2026-01-03"})
    compared.append(0)
    content = json.loads(bench.run("04_a").read_text())
    assert compared == [128, 0, 256, 128] and content["provenance"]["date"] == "2026-01-03"


def test_rows_of_a_table_that_are_of_no_comparison_do_not_matter(tmp_path):
    """As a counter's, which some benchmarks return among the others."""
    what = {"labels": {"M": 128}, "sides": [], "flops": 1.2345e6, "seconds": 0.2}
    both = [ROW, ROW | {"method": "sustained 200 ms"}]
    table = journal.Journal(tmp_path / "a.jsonl", {}, [ROW | {"method": "counted"}, *both, ROW])
    assert [table.take(what), table.take(what)] == [both, None] and table.kept == 1
