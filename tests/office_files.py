"""Small files in the formats of offices, made by hand or by their own libraries."""

from __future__ import annotations

import io
import json
import zipfile

PROSE = "The river rose two metres in the night."


def packed(files: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as parts:
        for name, text in files.items():
            parts.writestr(name, text)
    return out.getvalue()


def docx() -> bytes:
    schemas = "http://schemas.openxmlformats.org"
    office = f"{schemas}/officeDocument/2006/relationships/officeDocument"
    related = f'<Relationship Id="r1" Type="{office}" Target="word/document.xml"/>'
    heading = '<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>River</w:t></w:r></w:p>'
    body = f"<w:body>{heading}<w:p><w:r><w:t>{PROSE}</w:t></w:r></w:p></w:body>"
    files = {
        "[Content_Types].xml": f'<Types xmlns="{schemas}/package/2006/content-types"/>',
        "_rels/.rels": f'<Relationships xmlns="{schemas}/package/2006/relationships">{related}</Relationships>',
        "word/document.xml": f'<w:document xmlns:w="{schemas}/wordprocessingml/2006/main">{body}</w:document>',
    }
    return packed(files)


def pptx() -> bytes:
    from pptx import Presentation

    deck, out = Presentation(), io.BytesIO()
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    slide.shapes.title.text, slide.placeholders[1].text = "River", PROSE
    deck.save(out)
    return out.getvalue()


def pdf(pages: int = 1, lines: int = 0, *, scanned: bool = False) -> bytes:
    """Pages of text, a word divided between the first two lines, and then some of ten words; or none at all."""
    more = b"".join(b" 0 -14 Td (The water of line %d stood in the streets until noon.) Tj" % n for n in range(lines))
    shown = b"BT /F1 12 Tf 50 750 Td (    The river rose two me-) Tj 0 -14 Td (tres in the night.) Tj%s ET" % more
    shown = b"0 0 612 792 re f" if scanned else shown
    resources = b"/Resources<</Font<</F1 4 0 R>>>>"
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 3 0 R%s>>" % resources
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[%s]/Count %d>>" % (b" ".join(b"%d 0 R" % (5 + n) for n in range(pages)), pages),
        b"<</Length %d>>stream\n%s\nendstream" % (len(shown), shown),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        *[page] * pages,
    ]
    out = b"%PDF-1.4\n" + b"".join(b"%d 0 obj%s endobj\n" % (number, one) for number, one in enumerate(objects, 1))
    return out + b"trailer<</Root 1 0 R/Size %d>>\n%%%%EOF" % (5 + pages)


def ipynb() -> bytes:
    cells = [{"cell_type": "markdown", "source": ["# River\n", "\n", PROSE]}, {"cell_type": "code", "source": ["a()"]}]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()


def epub() -> bytes:
    container = '<container><rootfiles><rootfile full-path="c.opf"/></rootfiles></container>'
    item = '<manifest><item id="a" href="a.xhtml" media-type="application/xhtml+xml"/></manifest>'
    files = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": container,
        "c.opf": f'<package><metadata/>{item}<spine><itemref idref="a"/></spine></package>',
        "a.xhtml": f"<html><body><h1>River</h1><p>{PROSE}</p></body></html>",
    }
    return packed(files)


def html() -> bytes:
    paragraphs = f"<p>{PROSE}</p><p>{PROSE}</p>"
    return f"<!doctype html><html><nav>Home</nav><main><h1>River</h1>{paragraphs}</main></html>".encode()


MAKERS = {".docx": docx, ".pptx": pptx, ".pdf": pdf, ".ipynb": ipynb, ".epub": epub, ".html": html}
