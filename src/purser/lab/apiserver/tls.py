"""A certificate authority for one server's life, and the server certificate it signs. ECDSA P-256."""

import ssl
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from purser import pki
from purser.pki import Validity

_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


@dataclass(frozen=True, slots=True)
class Identity:
    """PEM texts: the authority's certificate, the server's certificate and its key."""

    ca: str
    certificate: str
    key: str

    def server_context(self) -> ssl.SSLContext:
        """For the listening side."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.num_tickets = 0  # clients of Kubernetes resume no session: two tickets each would be made for nothing
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "server.pem"
            path.touch(mode=0o600)
            path.write_text(self.certificate + self.key)
            context.load_cert_chain(path)
        return context


def make_identity(address: str) -> Identity:
    """A new authority and a certificate for `address`, `localhost` and the in-cluster names."""
    now = datetime.now(UTC)
    validity = Validity(now - timedelta(minutes=5), now + timedelta(days=365))
    ca = pki.make_ca("purser-lab-ca", validity)
    server = pki.issue_serving(ca, "kube-apiserver", [*_NAMES, *sorted({address, "127.0.0.1"})], validity)
    return Identity(ca.certificate.decode(), server.certificate.decode(), server.key.decode())
