"""Scripts and styles without comments and needless white space, and with the same meaning."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.components import require
from tracekit.render.page.compact import compact_script, compact_style

ASSETS = Path(__file__).parents[4] / "tracekit" / "render" / "page" / "assets"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("let a = 1; // one\nlet b = a + 2;", "let a=1;let b=a+2;"),
        ("/** Return it. */\nfunction f(a, b) {\n  return a;\n}\n", "function f(a,b){return a}"),
        ("/*! licence */\nf();", "/*! licence */\nf();"),
        ('const a = "  // no comment  ";', 'let a="  // no comment  ";'),
        ("const a = { b };\nconst { c } = a;\nlet d = c;\nconst e = d;", "let a={b},{c}=a;let d=c;let e=d;"),
        (
            "for (const a of b) f(a);\nconst c = 1;\nconst d = () => {\n  const e = 2;\n  const g = 3;\n};",
            "for(let a of b)f(a);let c=1,d=()=>{let e=2,g=3};",
        ),
        ("a = b / c / d;", "a=b/c/d;"),
        (r"a = b.replace(/[/*]  x/g, 'y');", r"a=b.replace(/[/*]  x/g,'y');"),
        ("a = `two  ${b + `${ c }  d`} spaces  `;", "a=`two  ${b+`${c}  d`} spaces  `;"),
        ("a = b + +c - -d;", "a=b+ +c- -d;"),
        ("f([\n  1,\n  2,\n]);", "f([1,2]);"),
        ("if (a) {\n  b();\n} else {\n  c();\n}", "if(a){b()}else{c()}"),
        ("return typeof a;", "return typeof a;"),
        ("f((row) => row.rank);", "f(row=>row.rank);"),
        ("return (row) => row.rank;", "return(row)=>row.rank;"),
        ("f(() => 1, (a, b) => a, ({ a }) => a, async (a) => a);", "f(()=>1,(a,b)=>a,({a})=>a,async(a)=>a);"),
    ],
)
def test_a_script_keeps_what_means_something(script: str, expected: str) -> None:
    assert compact_script(script) == expected


def test_a_style_keeps_what_means_something() -> None:
    style = "/* why */\n.a > .b,\n.c {\n  margin: 0 auto;\n  color: red;\n}\n"

    assert compact_style(style) == ".a > .b,.c{margin:0 auto;color:red}"


def test_the_page_s_scripts_still_parse(tmp_path: Path) -> None:
    """GIVEN the page's own scripts WHEN they are made shorter THEN JavaScript reads them, and no more can go."""
    node = shutil.which("node")
    require("node", node, "it reads the scripts; install Debian's nodejs")
    manifest = json.loads((ASSETS / "manifest.json").read_text())
    own = [(ASSETS / name).read_text("utf-8") for name in manifest["scripts"] if not name.startswith("vendor/")]
    shorter = [compact_script(text) for text in own]
    file = tmp_path / "page.js"
    file.write_text(";\n".join(shorter), "utf-8")

    assert [compact_script(text) for text in shorter] == shorter
    assert sum(map(len, shorter)) < 0.9 * sum(map(len, own))
    subprocess.run([str(node), "--check", str(file)], check=True, capture_output=True, text=True)
