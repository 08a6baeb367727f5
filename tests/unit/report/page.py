"""A page as a browser would split it."""

import html.parser


class Page(html.parser.HTMLParser):
    """Tags, attributes and text of a page, as a browser would split them."""

    VOID = frozenset({"meta", "link", "br", "wbr", "path", "use"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self._open: list[str] = []
        self.unbalanced: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID and (not self._open or self._open.pop() != tag):
            self.unbalanced.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data
