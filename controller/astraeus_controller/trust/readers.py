"""Who asks the API, and what each may see: by the socket's own word, a token, MUNGE, or a proxy's header."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

import msgspec
from starlette.requests import Request

from ..api.problem import Problem
from ..peer import SCOPE, Peer
from .munge import Busy, Unproven
from .prover import Proves
from .tokens import BadToken, Tokens
from .users import Users

READER = "astraeus.reader"
"""Key of the Reader in a request's scope."""
UNKNOWN_UID = -1
"""Of a user whom a proxy names and this host does not know: nobody's jobs are his."""

OWN_PAGE = ("same-origin", "none")
"""What a browser says of a request that its user made here: a proxy's session must not let another page drain nodes."""


class Reader(msgspec.Struct, frozen=True):
    """Who asks. ``is_operator``: he sees and may do everything that the API offers."""

    user: str
    uid: int
    is_operator: bool = False


class Readers:
    """``privileged``: uids of root and SlurmUser; ``operators()``: names of users who are operators; ``private()``:
    whether jobs are their owners' alone."""

    def __init__(self, *, privileged: Container[int], operators: Callable[[], Container[str]],
                 private: Callable[[], bool], prover: Proves, tokens: Tokens,
                 proxies: Iterable[str] = (), proxy_header: str = "X-Remote-User") -> None:
        self.privileged, self.operators, self.private = privileged, operators, private
        self.prover, self.tokens, self.users = prover, tokens, Users()
        self.proxies, self.proxy_header = frozenset(proxies), proxy_header

    async def of(self, request: Request) -> Reader | None:
        """Who asks; None where nothing says so. Raises Problem where what says so does not hold."""
        kind, _, value = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            try:
                return await self.reader(self.tokens.uid(value.strip()))
            except BadToken as why:
                raise Problem(401, f"{why}; make a new one: astraeus token") from None
        if kind.lower() == "munge":
            return await self._by_munge(request, value.strip())
        if kind:
            raise Problem(401, 'the header Authorization is to say "Bearer TOKEN", the token made with: astraeus token')
        peer: Peer | None = request.scope.get(SCOPE)
        if peer is not None:
            return await self.reader(peer.uid)
        name = request.headers.get(self.proxy_header, "")
        if name and request.client is not None and request.client.host in self.proxies:
            if request.method != "GET" and request.headers.get("sec-fetch-site", OWN_PAGE[0]) not in OWN_PAGE:
                raise Problem(403, "this was asked by another site's page")
            uid = await self.users.uid(name)
            return await self.reader(uid) if uid is not None else Reader(name, UNKNOWN_UID, name in self.operators())
        return None

    async def reader(self, uid: int) -> Reader:
        """The reader of that uid."""
        user = await self.users.name(uid)
        return Reader(user, uid, uid in self.privileged or user in self.operators())

    def may_see(self, reader: Reader | None, owner: int | None) -> bool:
        """Whether he may know of a job of the user ``owner`` (None: not known whose)."""
        if reader is None:
            return False
        return reader.is_operator or reader.uid == owner or (owner is not None and not self.private())

    async def _by_munge(self, request: Request, credential: str) -> Reader:
        """munged says who made the credential; it was made for this very request, and opens no other."""
        try:
            asker = await self.prover.reader(credential)
        except Unproven as why:
            raise Problem(401, f"who you are is not proven: {why}") from None
        except Busy as why:
            raise Problem(503, str(why)) from None
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        if asker.request != f"{request.method} {target}":
            raise Problem(401, "the credential was made for another request")
        return await self.reader(asker.uid)


def may_see_evidence(reader: Reader | None, owner: int | None) -> bool:
    """Evidence (the end of the output, stacks) is the job's owner's and the operators', whatever else is public."""
    return reader is not None and (reader.is_operator or (owner is not None and reader.uid == owner))
