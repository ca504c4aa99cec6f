"""An OpenID provider at an `Issuer`: accounts without passwords, codes that are redeemed once, and signed tokens."""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from html import escape
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from .issuer import Answer, Issuer

CLIENT_ID, CLIENT_SECRET = "console", "s3cret/of+console"
AUDIENCE = "kafka"
Response = tuple[int, dict[str, str], bytes]


@cache
def signing_key(number: int = 0) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def key_set(number: int = 0) -> bytes:
    row = RSAAlgorithm.to_jwk(signing_key(number).public_key(), as_dict=True)
    return json.dumps({"keys": [{**row, "kid": str(number), "use": "sig"}]}).encode()


@dataclass
class OpenIdIssuer:
    """Signs in `user` for every browser; the fields change the responses."""

    issuer: Issuer
    time_s: Callable[[], float]
    user: str = "ada"
    key: int = 0
    """Number of the signing key."""
    access_claims: dict[str, Any] = field(default_factory=dict)
    id_claims: dict[str, Any] = field(default_factory=dict)
    """Claims that replace those of the tokens; None removes one."""
    document: dict[str, Any] = field(default_factory=dict)
    """Replaced fields of the discovery document."""
    life_s: int = 300
    has_refresh: bool = False
    shows_page: bool = False
    """Show a page with a link back, as the password page of an issuer."""
    failure: int = 0
    """Status of the token endpoint; 0 if it works."""
    grants: list[dict[str, str]] = field(default_factory=list)
    """Fields of the requests to the token endpoint."""

    def __post_init__(self) -> None:
        self._codes: dict[str, dict[str, str]] = {}
        self._refresh_tokens: dict[str, str] = {}
        self._numbers = count(1)
        self.issuer.answer = self._answer

    def properties(self, folder: Path, **replaced: str) -> dict[str, str]:
        """Client properties of a console at this issuer."""
        secret = folder / "secret"
        secret.write_text(CLIENT_SECRET + "\n")
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oidc.issuer": self.issuer.url,
            "oidc.client.id": CLIENT_ID,
            "oidc.client.secret.file": str(secret),
            "oidc.ssl.truststore.location": str(self.issuer.ca),
            **replaced,
        }

    def authorize(self, url: str) -> str:
        """Follow an address to the issuer, as a browser does; the address that it redirects to."""
        context = ssl.create_default_context(cafile=str(self.issuer.ca))
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect)
        try:
            opener.open(url, timeout=60).close()
        except urllib.error.HTTPError as error:
            error.close()
            return str(error.headers["Location"])
        raise AssertionError("the issuer did not redirect")

    def access_token(self, user: str | None = None) -> str:
        return self._signed({"sub": user or self.user, "aud": AUDIENCE, "jti": next(self._numbers)}, self.access_claims)

    def _answer(self, request: Answer) -> Response:
        parts = urlsplit(request.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path == "/authorize":
            return self._authorize(query)
        if parts.path == "/token":
            return self._token(request)
        if parts.path == "/keys":
            return 200, {}, key_set(self.key)
        if parts.path == "/.well-known/openid-configuration":
            document = {
                "issuer": self.issuer.url,
                "authorization_endpoint": f"{self.issuer.url}/authorize",
                "token_endpoint": f"{self.issuer.url}/token",
                "jwks_uri": f"{self.issuer.url}/keys",
                "code_challenge_methods_supported": ["plain", "S256"],
            }
            return 200, {}, json.dumps(document | self.document).encode()
        return 404, {}, b""

    def _authorize(self, query: dict[str, str]) -> Response:
        code = f"code-{next(self._numbers)}"
        self._codes[code] = {**query, "user": self.user}
        url = f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state'], 'iss': self.issuer.url})}"
        if self.shows_page:
            return (
                200,
                {"Content-Type": "text/html"},
                f"<a id=back href='{escape(url, quote=True)}'>Continue</a>".encode(),
            )
        return 302, {"Location": url}, b""

    def _token(self, request: Answer) -> Response:
        fields = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        self.grants.append(fields)
        if self.failure:
            return self.failure, {}, b"{}"
        if not self._is_client(request.headers.get("Authorization", ""), fields):
            return 401, {}, b"{}"
        if fields["grant_type"] == "refresh_token":
            user = self._refresh_tokens.pop(fields["refresh_token"], None)
            return (400, {}, b"{}") if user is None else self._granted(user, {})
        begun = self._codes.pop(fields.get("code", ""), None)
        if begun is None or begun["redirect_uri"] != fields["redirect_uri"]:
            return 400, {}, b"{}"
        challenge = base64.urlsafe_b64encode(hashlib.sha256(fields["code_verifier"].encode()).digest()).decode()
        if begun["code_challenge"] != challenge.rstrip("=") or begun["code_challenge_method"] != "S256":
            return 400, {}, b"{}"
        return self._granted(begun["user"], {"nonce": begun["nonce"]})

    def _is_client(self, authorization: str, fields: dict[str, str]) -> bool:
        if self.document.get("token_endpoint_auth_methods_supported") == ["client_secret_post"]:
            return (fields.get("client_id"), fields.get("client_secret")) == (CLIENT_ID, CLIENT_SECRET)
        pair = urlencode({CLIENT_ID: CLIENT_SECRET}).replace("=", ":").encode()  # each part is encoded: RFC 6749, 2.3.1
        return authorization == "Basic " + base64.b64encode(pair).decode()

    def _granted(self, user: str, claims: dict[str, Any]) -> Response:
        document: dict[str, Any] = {
            "access_token": self.access_token(user),
            "token_type": "Bearer",
            "expires_in": self.life_s,
            "id_token": self._signed({"sub": user, "aud": CLIENT_ID, **claims}, self.id_claims),
        }
        if self.has_refresh:
            document["refresh_token"] = f"refresh-{next(self._numbers)}"
            self._refresh_tokens[document["refresh_token"]] = user
        return 200, {"Content-Type": "application/json"}, json.dumps(document).encode()

    def _signed(self, claims: dict[str, Any], replaced: dict[str, Any]) -> str:
        now_s = int(self.time_s())
        chosen = {"iss": self.issuer.url, "iat": now_s, "exp": now_s + self.life_s, **claims, **replaced}
        payload = {name: value for name, value in chosen.items() if value is not None}
        return jwt.encode(payload, signing_key(self.key), "RS256", {"kid": str(self.key)})


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None
