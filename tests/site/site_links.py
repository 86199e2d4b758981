"""Every link, picture, script and anchor of a built site, read from its HTML by a parser of its own."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

REFERS = {"a": "href", "img": "src", "script": "src", "link": "href", "source": "src"}


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.refers = []  # (element, target)
        self.anchors = []
        self.words = []
        self._hidden = 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag in ("script", "style"):
            self._hidden += 1
        for name in ("id", "name"):
            if given.get(name) and (name == "id" or tag == "a"):
                self.anchors.append(given[name])
        target = given.get(REFERS.get(tag))
        if target is not None:
            self.refers.append((tag, target))

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self._hidden -= 1

    def handle_data(self, data):
        if not self._hidden:
            self.words.append(data)


def read(folder):
    return {path.relative_to(folder).as_posix(): Page(path.read_text(encoding="utf-8"))
            for path in sorted(Path(folder).rglob("*.html"))}


def broken(folder, alone=()):
    """[what is wrong], over all pages but `alone`, which are files of their own."""
    folder = Path(folder).resolve()
    pages = read(folder)
    found = []
    for name, page in pages.items():
        if name in alone:
            continue
        base = folder if name == "404.html" else (folder / name).parent  # 404 stands anywhere
        twice = {each for each in page.anchors if page.anchors.count(each) > 1}
        found += [f"{name}: two anchors are called {each}" for each in sorted(twice)]
        for element, target in page.refers:
            address = urlsplit(target)
            if address.scheme or address.netloc:
                if element != "a":
                    found.append(f"{name}: <{element}> takes {target} from elsewhere")
                continue
            path = (base / unquote(address.path)).resolve() if address.path else folder / name
            if address.path.startswith("/"):
                path = folder / unquote(address.path).lstrip("/")
            if path.is_dir():
                path /= "index.html"
            if folder not in path.parents or not path.is_file():
                found.append(f"{name}: {target} leads to nothing")
            elif address.fragment and path.suffix == ".html":
                there = pages[path.relative_to(folder).as_posix()]
                if unquote(address.fragment) not in there.anchors:
                    found.append(f"{name}: {target} has no such anchor")
    return found
