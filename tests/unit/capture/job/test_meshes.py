"""Which mesh describes the run, with and without names of dimensions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Literal

import pytest

from tracekit.capture.job.groups import GroupTable, choose_mesh, find_layouts
from tracekit.model.metadata import Mesh

WORLD = 8


class Groups(GroupTable):
    """A table of (description, ranks); `handle(i)` is the process group of the i-th."""

    def __init__(self, *descriptions_and_ranks: tuple[str, list[int] | Literal["world"]]) -> None:
        super().__init__()
        self.handles = [SimpleNamespace(group_name=str(i)) for i in range(len(descriptions_and_ranks))]
        for i, (description, ranks) in enumerate(descriptions_and_ranks):
            self._add(self.handles[i], str(i), description, "gloo", ranks)


def mesh(names: tuple[str, ...] | None, shape: tuple[int, ...], coordinate: list[int] | None, *groups: Any) -> Any:
    def get_group(number: int) -> Any:
        if not groups:
            raise RuntimeError("this mesh has no groups")
        return groups[number]

    return SimpleNamespace(
        mesh_dim_names=names,
        shape=shape,
        ndim=len(shape),
        get_coordinate=lambda: coordinate,
        get_group=get_group,
    )


def chosen_mesh(meshes: list[Any], groups: GroupTable | None = None, rank: int = 7) -> Mesh | None:
    table = groups or GroupTable()
    return choose_mesh(find_layouts(meshes, table), table.groups, rank, WORLD)


def test_the_mesh_with_most_ranks_then_most_dimensions_then_names_is_chosen() -> None:
    tp = mesh(("tp",), (2,), [1])
    flat = mesh(None, (8,), [7])
    unnamed = mesh(None, (4, 2), [3, 1])
    named = mesh(("dp", "tp"), (4, 2), [3, 1])
    elsewhere = mesh(("a", "b", "c"), (2, 2, 2), None)  # this rank is not in it

    assert chosen_mesh([tp, flat, unnamed, named, elsewhere]) == Mesh(
        names=["dp", "tp"], shape=[4, 2], coordinate=[3, 1]
    )
    assert chosen_mesh([tp, flat]) == Mesh(names=["dim0"], shape=[8], coordinate=[7])
    assert chosen_mesh([tp]) == Mesh(names=["tp"], shape=[2], coordinate=[1])
    assert chosen_mesh([elsewhere]) is None


def test_dimensions_without_names_get_the_parallelism_of_their_groups() -> None:
    groups = Groups(("default_pg", "world"), ("mesh_dim_0", [3, 7]), ("mesh_dim_1", [5, 7]), ("mesh_dim_2", [6, 7]))
    layouts = find_layouts([mesh(None, (2, 2, 2), [1, 1, 1], *groups.handles[1:])], groups)

    groups.set_parallelism(groups.handles[1], "dp")
    groups.set_parallelism(groups.handles[3], "tp")

    assert choose_mesh(layouts, groups.groups, 7, WORLD) == Mesh(
        names=["dp", "dim1", "tp"], shape=[2, 2, 2], coordinate=[1, 1, 1]
    )


def test_two_dimensions_of_one_parallelism_get_different_names() -> None:
    groups = Groups(("mesh_dim_0", [3, 7]), ("mesh_dim_1", [4, 5, 6, 7]))
    layouts = find_layouts([mesh(None, (2, 4), [1, 3], *groups.handles)], groups)

    for handle in groups.handles:
        groups.set_parallelism(handle, "dp")

    mesh_of_run = choose_mesh(layouts, groups.groups, 7, WORLD)
    assert mesh_of_run is not None
    assert mesh_of_run.names == ["dp", "dp_1"]


def test_the_name_of_a_dimension_decides_the_parallelism_of_its_group() -> None:
    groups = Groups(("default_pg", "world"))

    find_layouts([mesh(("tp",), (8,), [7], *groups.handles)], groups)
    groups.set_parallelism(groups.handles[0], "dp")

    assert groups.groups[0].parallelism == "tp"


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_groups_made_by_hand_are_a_mesh_if_they_form_a_grid(order: tuple[int, ...]) -> None:
    hand_made = [("tp_group", [4, 5]), ("dp_group", [1, 5]), ("undefined", [5, 7])]
    groups = Groups(("default_pg", "world"), *(hand_made[i] for i in order))
    groups.set_parallelism(groups.handles[1 + order.index(2)], "pp")

    assert chosen_mesh([], groups, rank=5) == Mesh(names=["dp", "pp", "tp"], shape=[2, 2, 2], coordinate=[1, 0, 1])


@pytest.mark.parametrize(
    "hand_made",
    [
        [("tp_group", [4, 5])],  # not the whole world
        [("tp_group", [4, 5]), ("dp_group", [1, 3, 5, 7]), ("pp_group", [1, 5])],  # two share more than this rank
        [("tp_group", [4, 5]), ("ep_group", [1, 3, 5, 7])],  # expert groups overlap with the others
    ],
)
def test_groups_that_form_no_grid_are_no_mesh(hand_made: list[tuple[str, list[int] | Literal["world"]]]) -> None:
    assert chosen_mesh([], Groups(*hand_made), rank=5) is None
