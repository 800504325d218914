"""The page of commands: what each `--help` says."""

from __future__ import annotations

import click
from click.testing import CliRunner

from docs.reference.commands import command_pages
from tracekit.cli import COMMANDS, cli


def test_every_command_has_a_chapter_with_all_its_options() -> None:
    chapters = dict(chapter.split("\n", 1) for chapter in command_pages().removeprefix("## ").split("\n\n## "))

    assert list(chapters) == ["tracekit", *COMMANDS]
    for name, text in chapters.items():
        command = cli if name == "tracekit" else cli.get_command(click.Context(cli), name)
        assert command is not None
        options = [each.opts[0] for each in command.params if isinstance(each, click.Option) and not each.hidden]
        assert [option for option in options if option not in text] == []


def test_a_chapter_is_what_help_prints() -> None:
    pages = command_pages()
    for arguments in ([], ["analyze"], ["config"], ["cache"], ["cache", "clean"]):
        width = {"terminal_width": 78, "max_content_width": 78}
        printed = CliRunner().invoke(cli, [*arguments, "--help"], prog_name="tracekit", **width).stdout
        assert printed in pages
