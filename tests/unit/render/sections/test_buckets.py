"""Buckets as bars in 80 columns, without color."""

from __future__ import annotations

from tracekit.explain.ddp.buckets import BucketBar, BucketPicture, bucket_picture
from tracekit.render.console import write
from tracekit.render.sections.pictures import bucket_chart

MS = 1_000_000


def chart_lines(*times: tuple[float, float, float], module: str = "Network") -> list[str]:
    """Return the chart of buckets (ready, start, end), in milliseconds.

    The last gradient came when the last was ready.
    """
    bars = tuple(
        BucketBar(
            module=module,
            index=index,
            ready_ns=int(ready * MS),
            start_ns=int(start * MS),
            end_ns=int(end * MS),
            uncovered_ns=int((end - start) * MS),
        )
        for index, (ready, start, end) in enumerate(times)
    )
    picture = BucketPicture(rank=1, step=4, last_gradient_ns=max(bar.ready_ns for bar in bars), bars=bars)
    return write(bucket_chart(picture, 80), width=80, color=False).splitlines()


def test_a_bar_is_queued_hidden_and_after_the_last_gradient() -> None:
    lines = chart_lines((0, 0, 16), (16, 24, 40), (32, 40, 48))
    # 48 ms and an eighth of that before them are 54 columns: one a millisecond.
    first, second, third = (line for line in lines if line.startswith("bucket"))
    assert first[11:].rstrip() == " " * 6 + "▒" * 16 + " " * 32 + "    16.00"
    assert second[11:65] == " " * 22 + "·" * 8 + "▒" * 8 + "█" * 8 + " " * 8
    assert third[11:65] == " " * 38 + "·" * 8 + "█" * 8
    (gradients,) = (line for line in lines if line.startswith("gradients"))
    assert gradients.index("┤") == 11 + 37


def test_of_many_buckets_the_first_and_the_last_are_shown() -> None:
    lines = chart_lines(*((k * 10, k * 10, k * 10 + 8) for k in range(40)), module="a long name of a module")
    assert len(lines) <= 16
    assert all(len(line) <= 80 for line in lines)
    assert any(line.startswith("...") and "31 more" in line for line in lines)
    assert [line.split()[1] for line in lines if line.startswith("bucket")] == [*"01", *map(str, range(33, 40))]


def test_the_picture_is_a_typical_step_of_the_rank_with_most_exposed_time() -> None:
    times = [
        {
            "rank": rank,
            "step": step,
            "module": "Network",
            "index": 0,
            "ready_ns": 10,
            "start_ns": 10,
            "end_ns": 50,
            "uncovered_ns": uncovered_ns,
            "added_ns": uncovered_ns,
        }
        for rank, of_steps in ((0, (5, 9, 7)), (1, (20, 90, 30)))
        for step, uncovered_ns in enumerate(of_steps)
    ]
    picture = bucket_picture(times)
    assert picture is not None
    assert (picture.rank, picture.step, picture.last_gradient_ns) == (1, 2, 10)
    assert bucket_picture([]) is None
