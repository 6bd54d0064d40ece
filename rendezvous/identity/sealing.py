"""Seals the values of a store with the job's secret: AES-256-GCM, by `cryptography`.

Each process encrypts under a key of its own, which the secret and random bytes in front of each value give, so that
random nonces are enough however many processes write for however long.
"""

import os
import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ..store.seal import SEALED
from .secret import Secret

_SALT, _NONCE, _TAG = 16, 12, 16

_MOST_WRITERS = 4_096
"""Of which the keys are remembered; a stranger who can write to the store can make up any number."""


class SecretSeal:
    """A `Seal` of those who know `secret`."""

    def __init__(self, secret: Secret) -> None:
        self._secret = secret.derived("values of the store")
        self._salt = secrets.token_bytes(_SALT)
        self._own = self._cipher(self._salt)
        self._others: dict[bytes, AESGCM] = {}

    def sealed(self, key: bytes, value: bytes) -> bytes:
        nonce = os.urandom(_NONCE)
        return SEALED + self._salt + nonce + self._own.encrypt(nonce, value, key)

    def opened(self, key: bytes, data: bytes) -> bytes:
        begin = len(SEALED)
        if not data.startswith(SEALED) or len(data) < begin + _SALT + _NONCE + _TAG:
            return SEALED
        salt, nonce = data[begin : begin + _SALT], data[begin + _SALT : begin + _SALT + _NONCE]
        cipher = self._others.get(salt)
        if cipher is None:
            if len(self._others) >= _MOST_WRITERS:
                self._others.clear()
            cipher = self._others[salt] = self._cipher(salt)
        try:
            return cipher.decrypt(nonce, data[begin + _SALT + _NONCE :], key)
        except InvalidTag:
            return SEALED

    def _cipher(self, salt: bytes) -> AESGCM:
        derived = HKDF(hashes.SHA256(), 32, salt=salt, info=b"elastic-run values of the store v1").derive(self._secret)
        return AESGCM(derived)
