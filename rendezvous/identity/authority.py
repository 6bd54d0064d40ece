"""The certificate authorities of a secret, and what they issue; only this module loads `cryptography`.

An authority's key is a P-256 key that HKDF derives from the secret, so every node has the same one and none is sent
anywhere. One authority vouches for the nodes of a job, another for its observers: etcd, and every listener that knows
nothing of roles, trust the first alone, so an observer ends there in the handshake. A third is of the parameter servers
of one job and the workers that ask them, and is trusted by these alone. P-256 is what Python's OpenSSL,
gRPC's BoringSSL and etcd's Go all take. Each certificate has a random key of its own. An authority's certificate names
the secret's fingerprint, so a certificate of another secret is told from one of the same secret by its issuer.
"""

import datetime
import ipaddress
from collections.abc import Iterable

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ..base.frozen import dataclass, field, replace
from . import OBSERVERS, SERVER_NAME, job_mark
from .contexts import Issued
from .secret import Secret

BACKDATED = datetime.timedelta(days=1)
"""A certificate is valid from so long before its making, for peers whose clocks are behind."""

_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of P-256's group
_BEGIN = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
_END = datetime.datetime(2099, 12, 31, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class Authority:
    """Issues certificates in the name of one secret."""

    name: x509.Name
    key: ec.EllipticCurvePrivateKey = field(repr=False)
    certificate: x509.Certificate

    @classmethod
    def of(cls, secret: Secret) -> "Authority":
        """That of the nodes; every holder of the secret rebuilds it, and its certificate's signature alone differs."""
        return cls._derived(secret, b"elastic-run certificate authority v1", f"authority {secret.fingerprint}")

    @classmethod
    def of_observers(cls, secret: Secret) -> "Authority":
        """The same for the observers."""
        return cls._derived(secret, b"elastic-run authority of observers v1", f"{OBSERVERS}{secret.fingerprint}")

    @classmethod
    def of_servers(cls, secret: Secret, job: str) -> "Authority":
        """The same for the servers of the job of that id, and its workers."""
        mark = job_mark(job)
        info = f"elastic-run authority of servers v1 {mark}".encode()
        return cls._derived(secret, info, f"servers of {secret.fingerprint}", _job_name(mark))

    @classmethod
    def _derived(cls, secret: Secret, info: bytes, common_name: str, *names: "x509.NameAttribute[str]") -> "Authority":
        # 16 bytes more than the order has, so that the remainder is as good as uniform.
        derived = HKDF(hashes.SHA256(), 48, salt=None, info=info).derive(secret.value)
        key = ec.derive_private_key(int.from_bytes(derived, "big") % (_ORDER - 1) + 1, ec.SECP256R1())
        name = _name(common_name, *names)
        public = key.public_key()
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(public)
            .serial_number(1)
            .not_valid_before(_BEGIN)
            .not_valid_after(_END)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(name, key, certificate)

    def issue(self, role: str, seconds: float, now: float, hosts: Iterable[str] = ()) -> Issued:
        """A certificate of a node, with a fresh key.

        Args:
            role: what its holder is, such as "agent"; stands in the certificate, and limits nothing.
            seconds: for which it is valid from `now` on.
            now: seconds since the epoch.
            hosts: further names and addresses under which it serves.
        """
        alternatives = [x509.DNSName(SERVER_NAME), *map(_alternative, dict.fromkeys(hosts))]
        names = x509.SubjectAlternativeName(alternatives)
        return self._signed(_name(role), seconds, now, names, ExtendedKeyUsageOID.SERVER_AUTH)

    def issue_to_observer(self, job: str, seconds: float, now: float) -> Issued:
        """The same for an observer of the job of that id; nothing can be served with it."""
        return self._signed(_name("observer", _job_name(job_mark(job))), seconds, now, None)

    def issue_to_worker(self, seconds: float, now: float) -> Issued:
        """The same for a worker of the job whose servers this authority is of."""
        return self._signed(_name("worker"), seconds, now, None)

    def _signed(
        self,
        name: x509.Name,
        seconds: float,
        now: float,
        names: x509.SubjectAlternativeName | None,
        *usages: x509.ObjectIdentifier,
    ) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        at = datetime.datetime.fromtimestamp(now, datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(at - BACKDATED)
            .not_valid_after(at + datetime.timedelta(seconds=seconds))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([*usages, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        return Issued(
            at=now,
            until=now + seconds,
            authority=_text(self.certificate),
            certificate=_text(builder.sign(self.key, hashes.SHA256())),
            key=key.private_bytes(serialization.Encoding.PEM, form, plain).decode("ascii"),
        )


def issued(secret: Secret, role: str, seconds: float, now: float, hosts: Iterable[str] = ()) -> Issued:
    """What a process of the job holds; the arguments are those of `Authority.issue`."""
    observers = _text(Authority.of_observers(secret).certificate)
    return replace(Authority.of(secret).issue(role, seconds, now, hosts), observers=observers)


def _text(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")


def _name(common_name: str, *more: "x509.NameAttribute[str]") -> x509.Name:
    organization = x509.NameAttribute(NameOID.ORGANIZATION_NAME, "elastic-run")
    return x509.Name([organization, *more, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _job_name(mark: str) -> "x509.NameAttribute[str]":
    return x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, mark)


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
