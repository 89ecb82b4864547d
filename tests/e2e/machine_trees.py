"""Files of machines that are not at hand (tests/data/machines), written below a folder."""
from conftest import ROOT

MACHINES = sorted(path.stem for path in (ROOT / "tests/data/machines").glob("*.txt"))


def plant(name, folder):
    """Writes the machine's files below `folder`; returns their contents by path."""
    files = {}
    for line in (ROOT / f"tests/data/machines/{name}.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            path, text = line.split(" =", 1)
            files[path] = text.strip().replace("\\n", "\n")
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(files[path] + "\n")
    return files
