"""The UCI tables from npz and text files, and from damaged ones."""

from hashlib import sha256

import numpy as np
import pytest

from mindgap.core.errors import DataUnavailableError, InputError
from mindgap.data import uci


class TestUci:
    def arrays(self, random):
        x, y = random.normal(size=(308, 6)), random.normal(size=308)
        masks = np.zeros((20, 308), dtype=bool)
        for mask in masks:
            mask[random.permutation(308)[:31]] = True
        return x, y, masks

    def test_npz(self, folder, random):
        x, y, masks = self.arrays(random)
        (folder / "tabular" / "gal_uci").mkdir(parents=True)
        np.savez(folder / "tabular" / "gal_uci" / "yacht.npz", x=x, y=y, test_mask=masks)
        self.compare(x, y, masks)

    def test_official_text_files(self, host, random, monkeypatch, cache):
        x, y, masks = self.arrays(random)
        base = "UCI_Datasets/yacht/data/"
        text = {
            "data": np.hstack([x, y[:, None]]),
            "index_features": np.arange(6),
            "index_target": np.array([6]),
        }
        text |= {f"index_test_{split}": np.flatnonzero(mask) for split, mask in enumerate(masks)}
        for name, array in text.items():
            rows = array if array.ndim == 2 else array[:, None].astype(float)
            lines = [" ".join(f"{cell:.17e}" for cell in row) for row in rows]
            host.files[f"{base}{name}.txt"] = ("\n".join(lines) + "\n").encode()
        checksums = {path: sha256(content).hexdigest() for path, content in host.files.items()}
        monkeypatch.setattr("mindgap.data.uci_tables.BASE", host.url)
        monkeypatch.setattr("mindgap.data.uci_tables._checksums", lambda: checksums)
        self.compare(x, y, masks)
        assert (cache / base / "data.txt").exists()

    def compare(self, x, y, masks):
        for split in (0, 7):
            data = uci("yacht", split)
            np.testing.assert_array_equal(data.inputs.numpy(), x[~masks[split]].astype(np.float32))
            np.testing.assert_array_equal(
                data.test_targets[:, 0].numpy(), y[masks[split]].astype(np.float32)
            )

    def test_split_out_of_range(self):
        with pytest.raises(
            InputError,
            match=r"split must be an integer from 0 to 4 \(the last published split\), got 5",
        ):
            uci("protein", 5)

    @pytest.mark.parametrize(
        "damage", ["empty", "text", "cut", "pickle", "missing", "short", "npy"]
    )
    def test_damaged(self, folder, random, damage):
        x, y, masks = self.arrays(random)
        path = folder / "tabular" / "gal_uci" / "yacht.npz"
        path.parent.mkdir(parents=True)
        if damage == "pickle":
            np.savez(path, x=np.array([object()]), y=y, test_mask=masks)
        elif damage == "missing":
            np.savez(path, x=x, y=y)
        elif damage == "short":
            np.savez(path, x=x[:300], y=y[:300], test_mask=masks[:, :300])
        elif damage == "npy":
            with path.open("wb") as file:
                np.save(file, x)
        else:
            np.savez(path, x=x, y=y, test_mask=masks)
            whole = path.read_bytes()
            path.write_bytes(
                {"empty": b"", "text": b"hello", "cut": whole[: len(whole) // 2]}[damage]
            )
        with pytest.raises(DataUnavailableError, match=r"yacht\.npz must be"):
            uci("yacht")
