"""Forms and elements of a page."""

from __future__ import annotations

from html.parser import HTMLParser


class Page(HTMLParser):
    """The elements of a page, the fields of its forms by their actions, its text and its tables."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.forms: dict[str, dict[str, str]] = {}
        self.content = ""
        self.rows: list[list[str]] = []
        """Texts of the cells of all tables, without their headings."""
        self._is_cell = False
        self._form: dict[str, str] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.elements.append((tag, found))
        if tag == "form":
            self._form = self.forms.setdefault(str(found["action"]), {})
        elif tag == "input" and found.get("type") == "hidden":
            self._form[str(found["name"])] = str(found["value"])
        elif tag == "tr":
            self.rows.append([])
        elif tag == "td":
            self.rows[-1].append("")
            self._is_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag == "td":
            self._is_cell = False
        elif tag == "tr" and not self.rows[-1]:
            self.rows.pop()

    def handle_data(self, data: str) -> None:
        self.content += data
        if self._is_cell:
            self.rows[-1][-1] += data

    def links(self) -> list[str]:
        return [str(found.get("href")) for tag, found in self.elements if tag == "a"]


def require_inert(target: str, text: str) -> None:
    """Fail if a page has a script, a style or an address of another site, besides those of every page."""
    for tag, attributes in Page(text).elements:
        where = (target, tag, attributes)
        assert tag not in ("iframe", "object", "embed", "style", "base"), where
        if tag == "script":
            assert attributes == {"src": "/static/console.js", "type": "module"}, where
        assert not any(name.startswith("on") or name == "style" for name in attributes), where
        for name in ("href", "src", "action"):
            assert str(attributes.get(name, "/")).startswith(("/", "#")), where
