"""A difference is explained by the fewest conventions without which it is gone; where none helps, that is said."""

from __future__ import annotations

from tracekit.hta.cross_check import ALL_RANKS, CLASSES, Comparison, Figures, HtaChoices, Variants, compare

LAST, ROUNDED = "leaves out the last step", "rounds times to whole microseconds"
OUTSIDE, HOST = "counts kernels outside complete steps", "counts host operators that name a stream as kernels"
SPAN = "counts from the first kernel to the last, not whole steps"


def figures(*, total: float = 1000, compute: float = 600, exposed: float = 300, overlap: float = 25) -> Figures:
    """Return the figures of rank 0; what is neither compute nor exposed is idle."""
    values = {"total": total, "compute": compute, "exposed": exposed, "overlap": overlap}
    values["idle"] = total - compute - exposed
    return Figures(values={(name, 0): value for name, value in values.items()}, errors={})


OURS = figures()


def reasons(
    theirs: dict[HtaChoices, Figures] | Figures, *, whole: Figures = OURS, classes_differ: bool = False
) -> dict[str, tuple[str, ...]]:
    """Return the reasons by figure. `theirs`: what HTA has for some choices; for others it has ours."""

    def of_hta(choices: HtaChoices) -> Figures:
        return theirs if isinstance(theirs, Figures) else theirs.get(choices, OURS)

    variants = Variants(ours=lambda all_: whole if all_ else OURS, theirs=of_hta, classes_differ=lambda: classes_differ)
    return {each.figure: each.reasons for each in compare(variants)}


def test_equal_figures_have_no_reason() -> None:
    assert set(reasons(figures(compute=600.9, exposed=299.1, overlap=25.004)).values()) == {()}


def test_one_convention_that_is_enough_is_the_reason() -> None:
    different = figures(compute=500, exposed=250, overlap=20)
    by_choice = {
        HtaChoices(): different,
        HtaChoices(rounded=False): different,
        HtaChoices(host_events=False): different,
    }
    assert reasons(by_choice, whole=OURS)["compute"] == (LAST,)
    by_choice = {HtaChoices(): different, HtaChoices(last_step=True): different}
    assert reasons(by_choice)["overlap"] == (ROUNDED,)


def test_host_events_are_a_reason() -> None:
    different = figures(compute=650, exposed=300)
    by_choice = {
        HtaChoices(last_step=last, rounded=rounded): different for last in (False, True) for rounded in (False, True)
    }
    assert reasons(by_choice)["compute"] == (HOST,)


def test_kernels_outside_steps_are_a_reason() -> None:
    outside = figures(total=1200, compute=800, exposed=300)
    assert reasons(outside, whole=outside)["compute"] == (OUTSIDE,)


def test_two_conventions_are_named_where_one_is_not_enough() -> None:
    good = HtaChoices(last_step=True, rounded=False)
    by_choice = {
        HtaChoices(last_step=last, rounded=rounded, host_events=host): figures(compute=500 + 10 * last, exposed=200)
        for last in (False, True)
        for rounded in (False, True)
        for host in (False, True)
        if (last, rounded) != (good.last_step, good.rounded)
    }
    assert reasons(by_choice)["compute"] == (LAST, ROUNDED)


def test_total_and_idle_differ_by_the_span_if_as_much_is_busy() -> None:
    actual = reasons(figures(total=950))
    assert (actual["total"], actual["idle"], actual["compute"]) == ((SPAN,), (SPAN,), ())


def test_compute_differs_by_classes_if_as_much_is_busy_and_kernels_are_classed_differently() -> None:
    theirs = figures(compute=700, exposed=200)
    assert reasons(theirs, classes_differ=True)["compute"] == (CLASSES,)
    (reason,) = reasons(theirs)["compute"]
    assert reason == "differs by no convention that was tried"


def test_only_figures_that_both_have_are_compared() -> None:
    ours = Figures(values={("compute", 0): 1.0, ("compute", 1): 1.0}, errors={})
    theirs = Figures(values={("compute", 1): 1.0, ("idle", 1): 0.0}, errors={})
    actual = compare(Variants(ours=lambda _: ours, theirs=lambda _: theirs, classes_differ=lambda: False))
    assert actual == [Comparison(figure="compute", rank=1, ours=1.0, theirs=1.0, reasons=())]


def test_communication_of_all_ranks_is_as_busy_as_all_ranks() -> None:
    both = {("total", 0): 10.0, ("idle", 0): 4.0, ("total", 1): 20.0, ("idle", 1): 5.0}
    assert Figures(values=both, errors={}).busy_us(ALL_RANKS) == 21
    assert Figures(values={}, errors={}).busy_us(ALL_RANKS) is None
