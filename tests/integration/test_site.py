"""The documentation site: its made pages hold every key and every command, anchors lead somewhere, it builds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from catchline.cli.main import COMMANDS, EXIT_CODES, VARIABLES, load_command
from catchline.config import names
from catchline.config.schema import OptimizerConfig, RunConfig
from commands import program

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def site() -> ModuleType:
    return program("site_pages")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_anchors_that_are_linked_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]*#[^)\s]+)\)", FENCE.sub("", page.read_text(encoding="utf-8"))):
        place, _, anchor = target.partition("#")
        if "://" not in target and (not place or place.endswith(".md")):
            assert anchor in anchors((page.parent / place).resolve() if place else page), f"{page.name}: {target}"


def test_the_page_of_keys_has_every_key_with_default_range_and_source(site: ModuleType) -> None:
    page = site.keys_page()
    for section, field in RunConfig.model_fields.items():
        assert f"`{section}`" in page, section
        group = site._group_in(field.annotation)
        assert group is None or all(f"`{section}.{key}`" in page for key in group.model_fields), section
    rate = OptimizerConfig().learning_rate
    row = [
        "`training.optimizer.learning_rate`",
        "number, above 0, at most 1000",
        f"`{rate}`",
        "`config.schema.OptimizerConfig`",
    ]
    assert f"| {' | '.join(row)} |" in page
    assert all(f"### `{name}`" in page for table in (names.MODELS, names.SCORERS, names.OBJECTIVES) for name in table)


def test_the_page_of_commands_has_every_option(site: ModuleType) -> None:
    page = site.commands_page()
    for name in COMMANDS:
        command = load_command(name)
        assert f"## `catchline {name}`" in page
        for one in getattr(command, "commands", {"": command}).values():
            for parameter in one.params:
                assert parameter.opts[0] in page or not parameter.opts[0].startswith("-")
    assert all(f"| `{key}` | {said} |" in page for key, said in {**EXIT_CODES, **VARIABLES}.items())


def test_links_out_of_the_site_become_text(site: ModuleType) -> None:
    text = "[a](../src/a.py), [b](text.md#b), ![c](images/c.png), [d](https://example.org), [e](CONTRIBUTING.md)"
    assert site.inside_only(text) == "a, [b](text.md#b), ![c](images/c.png), [d](https://example.org), e"


def test_every_page_is_in_the_contents(site: ModuleType) -> None:
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} | set(site.made_pages()) | {"brand_new.md"}
    listed = [place for section in site.navigation(pages) for places in section.values() for place in places]
    assert sorted(listed) == sorted(pages)


@pytest.mark.slow
def test_the_site_builds_strictly_and_asks_nobody_for_anything(tmp_path: Path) -> None:
    pytest.importorskip("mkdocstrings", reason="the site needs: pip install 'catchline[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    paths = {"PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **paths}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site" / "reference" / "api.html").read_text(encoding="utf-8")
    assert "save_pretrained" in page
    assert not re.findall(r'(?:src|href)="(https?:)?//[^"]+\.(?:js|css|woff2?)"', page)
