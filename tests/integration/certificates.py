"""An authority of certificates for servers and clients of a store."""

import shutil
import subprocess
from pathlib import Path

import pytest


class Certificates:
    """An authority in a folder, and what it signed."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("openssl") is None:
            pytest.fail("these tests need the command openssl: apt-get install openssl", pytrace=False)
        self.folder = folder
        folder.mkdir()
        self.ca = str(folder / "ca.pem")
        self._openssl("req", "-x509", *self._new("ca"), "-subj", "/CN=test authority", "-days", "2", "-out", self.ca)

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)

    def _new(self, name: str) -> tuple[str, ...]:
        key = str(self.folder / f"{name}.key")
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key)

    def sign(self, name: str) -> tuple[str, str]:
        """A certificate for 127.0.0.1 and its key."""
        request, cert, extensions = (self.folder / f"{name}.{kind}" for kind in ("csr", "pem", "ext"))
        extensions.write_text("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
        self._openssl("req", *self._new(name), "-subj", f"/CN={name}", "-out", str(request))
        authority = ("-CA", self.ca, "-CAkey", str(self.folder / "ca.key"), "-CAcreateserial", "-days", "2")
        files = ("-in", str(request), "-out", str(cert), "-extfile", str(extensions))
        self._openssl("x509", "-req", *files, *authority)
        return str(cert), str(self.folder / f"{name}.key")
