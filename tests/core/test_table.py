"""The images of a table in Markdown."""

from __future__ import annotations

from mindgap.core import Bar, Gallery, Sample, Table

ADDRESS = "data:image/png;base64,AAAA"


def table(caption: str) -> Table:
    gallery = Gallery(title="Heaviest", samples=[Sample(image=ADDRESS, caption=caption)])
    return Table(title="t", columns=("a",), rows=((1,),), notes=("n",), charts=(Bar(), gallery))


def test_a_gallery_comes_after_the_notes() -> None:
    text = table("3 → 5").to_markdown()
    assert text.index("- n") < text.index("**Heaviest**") < text.index(ADDRESS)
    assert 'alt="3 → 5"' in text
    assert text.count("<figure") == 1


def test_captions_are_escaped() -> None:
    text = table('<script>"x"</script>').to_markdown()
    assert "<script>" not in text
    assert "&lt;script&gt;&quot;x&quot;" in text


def test_other_charts_leave_no_trace() -> None:
    plain = Table(title="t", columns=("a",), rows=((1,),), charts=(Bar(),))
    assert plain.to_markdown() == Table(title="t", columns=("a",), rows=((1,),)).to_markdown()
