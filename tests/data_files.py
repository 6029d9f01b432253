"""Files that tests of readers write."""

from pathlib import Path


def write(path: Path, content: bytes) -> Path:
    """Write a file below folders that need not exist yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path
