"""Flagged nodes over the API: everybody may see them, operators drain and clear them."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request

from ..actions.flag import Flagged, sentence
from ..actions.node_flags import NodeFlags
from ..actions.node_writer import Declined
from ..slurm.command import Away, Refused
from ..slurm.nodes import NAME
from ..trust.readers import READER, Reader
from . import views
from .problem import Problem
from .views import Json


class NodeApi:
    """``may_see(request, job)``: whether who asks may know of the job."""

    def __init__(self, flags: NodeFlags, *, may_see: Callable[[Request, int], bool]) -> None:
        self.flags, self.may_see = flags, may_see

    def list(self, request: Request) -> Json:
        """Flagged nodes; with ``?all`` those, too, of which one stall is known. Jobs of others are only counted."""
        found = [of for of in self.flags.all() if of.flagged or "all" in request.query_params]
        return {"nodes": [self._node(request, of) for of in found],
                "node_action": self.flags.config.nodes.node_action, "days": 30}

    async def drain(self, request: Request) -> Json:
        """Out of service, with the sentence as its reason."""
        node, by = await self._asked(request)
        try:
            return {"node": node, "reason": await self.flags.drain(node, by)}
        except Declined as why:
            raise Problem(409, str(why)) from None
        except (Away, Refused) as fault:
            raise Problem(503, f"Slurm did not answer: {fault}") from None

    async def clear(self, request: Request) -> Json:
        """Its flags are dealt with; back into service where the reason is still ours."""
        node, by = await self._asked(request)
        try:
            resumed, said = await self.flags.clear(node, by)
        except Declined as why:
            raise Problem(409, str(why)) from None
        except (Away, Refused) as fault:
            raise Problem(503, f"Slurm did not answer: {fault}") from None
        return {"node": node, "resumed": resumed, "said": said}

    async def _asked(self, request: Request) -> tuple[str, str]:
        """(node, who asks), where who asks may do it."""
        node = request.path_params["node"]
        if not NAME.fullmatch(node):
            raise Problem(400, f'"{node[:40]}" is no name of a node; write one, such as c3')
        reader: Reader = request.scope[READER]
        try:  # who has become one since operators were read last is one
            good = reader.is_operator or await self.flags.writer.nodes.operates(reader.user)
        except Away as fault:
            raise Problem(503, f"whether you are an operator can't be told: {fault}") from None
        if not good:
            raise Problem(403, "only root, SlurmUser, and users whom Slurm's accounting makes Operator or "
                               "Administrator may do this")
        return node, reader.user

    def _node(self, request: Request, of: Flagged) -> Json:
        mark, last = self.flags.store.flags.mark(of.node), of.last
        jobs = {flag.job: flag.run for flag in of.flags}
        seen = [run for job, run in jobs.items() if self.may_see(request, job)]
        mine = self.may_see(request, last.job)
        return {
            "node": of.node, "flagged": of.flagged, "kind": last.kind,
            "evidence": last.words if mine or last.kind != "stall" else "a run of another user stalled here",
            "gpu": last.gpu, "uuid": last.uuid or None, "at": views.iso(last.at), "now": last.over_at is None,
            "times": len(of.flags), "runs": seen, "others": len(jobs) - len(seen),
            "commented": bool(mark.written), "drained": bool(mark.reason), "drained_by": mark.by or None,
            "drained_at": views.iso(mark.drained_at), "reason": mark.reason or None,
            "flags": [{"at": views.iso(flag.at), "kind": flag.kind, "run": flag.run, "worker": flag.worker,
                       "evidence": flag.words, "gpu": flag.gpu, "uuid": flag.uuid or None,
                       "over_at": views.iso(flag.over_at), "key": flag.key}
                      for flag in of.flags if self.may_see(request, flag.job)],
            "sentence": sentence(of) if mine else None,
        }

