"""Pseudonyms: consistent, ordered as the names, and saying nothing of them."""

from __future__ import annotations

import pickle

import pytest

from tracekit.model.names.pseudonyms import NameCollector, Pseudonyms, group_name, host_name, module_name
from tracekit.model.notes import Note


def of(**names: list[str]) -> Pseudonyms:
    return Pseudonyms.of_names(names, [["runs/secret"], ["runs/other"]])  # type: ignore[arg-type]


def test_pseudonyms_sort_as_the_names_did() -> None:
    names = [f"n{i:02}" for i in range(12)]
    pseudonyms = of(host=names)
    assert [pseudonyms.name("host", name) for name in names] == [f"host-{i:02}" for i in range(1, 13)]
    assert pickle.loads(pickle.dumps(pseudonyms)).name("host", "n03") == "host-04"
    assert (pseudonyms.name("host", "unseen"), pseudonyms.name("host", "")) == ("host-x", "")


@pytest.mark.parametrize(("count", "last"), [(26, "group-z"), (27, "group-ba"), (677, "group-baa")])
def test_groups_have_letters_as_many_as_it_takes(count: int, last: str) -> None:
    names = [f"g{i:04}" for i in range(count)]
    pseudonyms = of(group=names)
    assert len({pseudonyms.name("group", name) for name in names}) == count
    assert pseudonyms.name("group", names[-1]) == last


def test_paths_of_modules_keep_their_shape() -> None:
    pseudonyms = of(module=["tower", "up", "head"])
    assert module_name(pseudonyms, "tower.0.up.weight") == "module-2.0.module-3.weight"
    assert module_name(pseudonyms, "tower.0, head and 3 more") == "module-2.0, module-1 and 3 more"
    assert module_name(pseudonyms, "") == ""


def test_groups_keep_what_only_says_what_they_are_for() -> None:
    collector = NameCollector()
    names = ["default_pg", "mesh_tp", "tp_group", "12", "mesh_secret", "secret", "expert_of_x_3", "dp#7", "dp#secret"]
    for name in names:
        group_name(collector, name)
    pseudonyms = Pseudonyms.of_names(collector.names)
    assert [group_name(pseudonyms, name) for name in names] == [
        *("default_pg", "mesh_tp", "tp_group", "12", "mesh_group-b", "group-b", "group-a-3", "dp#7", "dp#group-b"),
    ]
    assert host_name(pseudonyms, "localhost") == "localhost"
    assert group_name(of(group=["c0ffee1d"]), "c0ffee1d") == "group-a-0"


def test_messages_have_no_known_name_and_no_path() -> None:
    pseudonyms = of(module=["tower"], host=["node-3"], file=["a b.json"], group=["secret"])
    text = "rank 1: a b.json: tower.0 on node-3:22 in /home/x/y.py, of group secret; see runs/secret/z, 'tower'"
    assert pseudonyms.text(text) == (
        "rank 1: file-1: module-1.0 on host-1:22 in path-x, of group group-a; see run-1/z, 'module-1'"
    )
    note = Note(id="limit", severity="error", file="a b.json", text="a b.json: too long")
    assert pseudonyms.note(note) == Note(id="limit", severity="error", file="file-1", text="file-1: too long")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see /home/john smith/x/t.py", "see path-x"),
        ("'/home/john smith/my file': not found", "'path-x': not found"),
        ("/home/a b c/d.py: no such file, in /e", "path-x: no such file, in path-x"),
        ("in /a/b and /c/d", "in path-x and path-x"),
        ("~/john smith/x is no file", "path-x is no file"),
        ("3 of 4 ranks, at 5 GB/s", "3 of 4 ranks, at 5 GB/s"),
    ],
)
def test_a_path_may_have_spaces(text: str, expected: str) -> None:
    assert of().text(text) == expected
