from __future__ import annotations

import os
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from chunking import EDGE, in_chunks

from boxmatch import Matcher
from boxmatch.model.axis import ABSENT
from boxmatch.workloads import RangeWorkload, write_sample_events
from boxmatch.workloads.event_file import event_pool, read_events


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    path = tmp_path / "sample.csv"
    write_sample_events(path)
    return path


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "events.txt"
    path.write_text(text, encoding="utf-8")
    return path


class TestReading:
    @pytest.mark.parametrize(
        "text",
        [
            "1 2.5 nan\n4 5e1 6\n",
            "  1  2.5 NaN  \n4 5e1 6",
            "1,2.5,\n4,50,6\n",
            "1, 2.5, \r\n4, 50, 6\r\n",
            "1\t2.5\t\n\n4\t50\t6\n\n",
            "a,b,c\n1,2.5,NaN\n4,50,6\n",
            ",b,c\n1,2.5,NaN\n4,50,6\n",
            "low high other\n1 2.5 nan\n4 5e1 6\n",
            "\ufeff1 2.5 nan\n4 5e1 6\n",
        ],
    )
    def test_separators_headers_and_absent_values(self, tmp_path: Path, text: str) -> None:
        values = read_events(written(tmp_path, text)).values
        assert np.array_equal(values, [[1, 2.5, np.nan], [4, 50, 6]], equal_nan=True)

    def test_a_first_row_without_values_is_no_header(self, tmp_path: Path) -> None:
        assert len(read_events(written(tmp_path, ",,\n1,2,3\n")).values) == 2

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "events.txt is empty"),
            ("\n \n", "events.txt is empty"),
            ("a,b\n", "events.txt has a header and no rows"),
            ("1 2\n3 x4\n", r"events.txt, line 2, column 2: 'x4' is not a number"),
            ("a,b\n1,2\n\n3,-\n", r"events.txt, line 4, column 2: '-' is not a number"),
            ("1 two 3\n4 5 6\n", r"line 1, column 2: 'two' is not a number"),
            ("1 2\n3 4 5\n", "line 2: 3 values, but line 1 has 2"),
            ("1 2\n3 inf\n", "line 2, column 2: inf is not a number that can be used"),
        ],
    )
    def test_says_what_is_wrong_and_where(self, tmp_path: Path, text: str, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            read_events(written(tmp_path, text))

    def test_refuses_what_is_not_text(self, tmp_path: Path) -> None:
        path = tmp_path / "picture"
        path.write_bytes(b"\x89PNG\xff\xfe")
        with pytest.raises(ValueError, match="picture is not a text file"):
            read_events(path)
        with pytest.raises(FileNotFoundError):
            read_events(tmp_path / "nothing")

    def test_a_file_is_read_once_until_it_changes(self, tmp_path: Path) -> None:
        path = written(tmp_path, "1 2\n")
        assert read_events(path).values is read_events(str(path)).values
        path.write_text("3 4\n")
        os.utime(path, ns=(1, 1))  # the clock of the file system may be too coarse to notice
        assert read_events(path).values.tolist() == [[3, 4]]


class TestPool:
    def test_rounds_to_the_domain(self, tmp_path: Path) -> None:
        path = written(tmp_path, "0 0.4\nnan 9.6\n5.2 10\n")
        events, values, start = event_pool(path, 2, 10)
        assert events.tolist() == [[1, 1], [ABSENT, 10], [5, 10]]
        assert start.tolist() == [0, 2, 5]
        assert values.tolist() == [1, 5, 1, 10, 10]

    @pytest.mark.parametrize("value", ["-1", "10.6"])
    def test_refuses_values_outside_the_domain(self, tmp_path: Path, value: str) -> None:
        path = written(tmp_path, f"a b\n1 2\n3 {value}\n")
        with pytest.raises(ValueError, match=f"line 3, column 2: {value} is not from 0 to"):
            event_pool(path, 2, 10)
        assert event_pool(path, 1, 10).events.tolist() == [[1], [3]]  # an unused column may

    def test_refuses_columns_without_values(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="column 2 has no value at all"):
            event_pool(written(tmp_path, "1,,2\n3,,4\n"), 3, 10)

    def test_draws_what_is_recorded_as_often(self, tmp_path: Path) -> None:
        pool = event_pool(written(tmp_path, "1 5\n1 nan\n1 7\n2 nan\n"), 2, 10)
        column = np.tile(np.array([0, 1], np.uint16), (20_000, 1))
        drawn = pool.draw(np.random.default_rng(3), column)
        assert set(drawn[:, 0]) == {1, 2}
        assert set(drawn[:, 1]) == {5, 7}
        assert (drawn[:, 0] == 1).mean() == pytest.approx(0.75, abs=0.02)
        assert (drawn[:, 1] == 5).mean() == pytest.approx(0.5, abs=0.02)


class TestSample:
    def test_is_small_and_has_holes(self, sample: Path) -> None:
        values = read_events(sample).values
        assert values.shape == (300, 12)
        assert np.isnan(values).mean() == pytest.approx(0.02, abs=0.01)
        assert np.nanmin(values) >= 1
        assert np.nanmax(values) <= 1_000_000
        distinct = [len(np.unique(column[~np.isnan(column)])) for column in values.T]
        assert min(distinct) <= 16
        assert max(distinct) > 250

    def test_depends_on_the_seed_alone(self, sample: Path, tmp_path: Path) -> None:
        again, other = tmp_path / "again", tmp_path / "other"
        write_sample_events(again)
        write_sample_events(other, seed=2)
        assert again.read_text() == sample.read_text()
        assert other.read_text() != sample.read_text()


class TestWorkload:
    def test_events_are_the_rows_again_and_again(self, sample: Path) -> None:
        workload = RangeWorkload.of_file(sample, subscriptions=10)
        assert (workload.attributes, workload.event_size, workload.predicates) == (12, 12, 10)
        recorded = np.rint(read_events(sample).values)
        rows = np.arange(290, 910) % 300
        assert np.array_equal(workload.events(290, 910), recorded[rows], equal_nan=True)

    def test_rows_do_not_depend_on_chunks(self, sample: Path) -> None:
        workload = RangeWorkload.of_file(sample, event_size=5, predicates=4, width_spread=0.3)
        assert in_chunks(workload.boxes)
        halves = [workload.event_keys(EDGE - 5, EDGE), workload.event_keys(EDGE, EDGE + 5)]
        assert np.array_equal(workload.event_keys(EDGE - 5, EDGE + 5), np.concatenate(halves))

    def test_smaller_events_keep_some_of_the_values(self, sample: Path) -> None:
        whole = RangeWorkload.of_file(sample, attributes=10)
        some = replace(whole, event_size=4)
        keys, full = some.event_keys(0, 3_000), whole.event_keys(0, 3_000)
        kept = keys != ABSENT
        assert np.array_equal(keys[kept], full[kept])
        assert kept.sum(axis=1).max() == 4
        # Each attribute has the same chance, whatever the file lacks of it.
        chance = kept.sum(axis=0) / (full != ABSENT).sum(axis=0)
        assert chance == pytest.approx(0.4, abs=0.05)
        assert not np.array_equal(kept[:300], kept[300:600])  # another choice the next time

    def test_forms_of_events_agree(self, sample: Path) -> None:
        workload = RangeWorkload.of_file(sample, event_size=9)
        keys, values = workload.event_keys(0, 300), workload.events(0, 300)
        assert ((keys == ABSENT) == np.isnan(values)).all()
        assert (keys == ABSENT).sum() > 3 * 300  # also where the file has holes
        for row, event in enumerate(workload.event_dicts(0, 300)):
            present = keys[row] != ABSENT
            names = [name for name, here in zip(workload.names, present, strict=True) if here]
            assert event == dict(zip(names, keys[row][present].tolist(), strict=True))

    @pytest.mark.parametrize("spread", [0.0, 0.5])
    def test_ranges_lie_around_recorded_values(self, sample: Path, spread: float) -> None:
        workload = RangeWorkload.of_file(
            sample, subscriptions=2_000, predicates=3, width=0.1, width_spread=spread
        )
        pool = event_pool(sample, 12, workload.domain)
        boxes = workload.boxes()
        assert boxes.low.min() >= 1
        assert boxes.high.max() <= workload.domain
        span = boxes.high - boxes.low
        assert span.mean() == pytest.approx(100_000, rel=0.02)
        centre = boxes.low + span // 2
        moved = (boxes.low == 1) | (boxes.high == workload.domain)
        assert 0 < moved.sum() < len(moved)
        for attribute in range(12):
            here = boxes.attribute == attribute
            recorded = pool.values[pool.start[attribute] : pool.start[attribute + 1]]
            assert np.isin(centre[here & ~moved], recorded).all()
            hits = [
                ((low <= recorded) & (recorded <= high)).any()
                for low, high in zip(boxes.low[here], boxes.high[here], strict=True)
            ]
            assert all(hits)

    def test_matching_agrees_with_the_dicts(self, sample: Path) -> None:
        workload = RangeWorkload.of_file(sample, subscriptions=500, predicates=2, event_size=9)
        matcher = Matcher(workload.schema, index="scan")
        matcher._subscribe_compressed(np.arange(500), workload.boxes())
        filters = workload.filters(0, 500)
        events = workload.event_dicts(0, 40)
        result = matcher.match_batch(workload.events(0, 40))
        found = set(zip(result.event.tolist(), result.subscription.tolist(), strict=True))
        assert found == {
            (e, s)
            for e, event in enumerate(events)
            for s, filter_ in enumerate(filters)
            if all(n in event and low <= event[n] <= high for n, (low, high) in filter_.items())
        }
        assert len(found) > 100

    def test_can_be_pickled_hashed_and_compared(self, sample: Path) -> None:
        workload = RangeWorkload.of_file(sample)
        assert workload == RangeWorkload.of_file(str(sample))
        assert hash(workload) == hash(RangeWorkload.of_file(str(sample)))
        assert workload != RangeWorkload(attributes=12, event_size=12)
        again = pickle.loads(pickle.dumps(workload))
        assert again == workload
        assert np.array_equal(again.event_keys(0, 9), workload.event_keys(0, 9))

    def test_parameters_are_checked(self, sample: Path) -> None:
        with pytest.raises(ValueError, match="must not exceed the 12 columns of"):
            RangeWorkload(event_file=sample)
        with pytest.raises(ValueError, match="predicates must be from 0"):
            RangeWorkload.of_file(sample, predicates=13)
        with pytest.raises(ValueError, match="is not from 0 to the domain, 1,000"):
            RangeWorkload.of_file(sample, domain=1_000)
        for parameters in ({"values": "zipf"}, {"event_values": "uniform"}):
            with pytest.raises(ValueError, match="values come from the event file"):
                RangeWorkload.of_file(sample, **parameters)
