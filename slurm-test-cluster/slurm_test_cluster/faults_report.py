"""What goes wrong between a node's monitor and the controller only: what ranks say to each other goes on."""

from __future__ import annotations

from slurm_test_cluster.hosts import Hosts
from slurm_test_cluster.waiting import wait_for

REPORT_PORT = 6831
RELAY_PORT = 16831
NOBODY = 65534
MARK = "report-fault"


class ReportFaults(Hosts):
    """Make a fault; ``heal_reports`` takes all of them back."""

    def cut_reports(self, node: str) -> None:
        """Nothing comes through, either way."""
        self._rule(node, "OUTPUT", "-p tcp --dport", "-j DROP")
        self._rule(node, "INPUT", "-p tcp --sport", "-j DROP")

    def lose_replies(self, node: str) -> None:
        """A cut one way: the controller hears `node`, and the node hears nothing."""
        self._rule(node, "INPUT", "-p tcp --sport", "-j DROP")

    def lose_packets(self, node: str, share: float) -> None:
        """Each packet is lost with this probability, either way."""
        at_random = f"-m statistic --mode random --probability {share} -j DROP"
        self._rule(node, "OUTPUT", "-p tcp --dport", at_random)
        self._rule(node, "INPUT", "-p tcp --sport", at_random)

    def slow_reports(self, node: str, seconds: float) -> None:
        """Everything arrives so much later, either way."""
        relay = f"python3 /opt/workloads/slow_relay.py {RELAY_PORT} ctl:{REPORT_PORT} {seconds}"
        command = f"setpriv --reuid {NOBODY} --clear-groups setsid {relay} >/dev/null 2>&1 </dev/null &"
        self.run(node, ["sh", "-c", command], check=True)
        wait_for(lambda: self.run(node, f"ss -Hltn sport = :{RELAY_PORT} | grep -q .").ok, 10, 0.2, "the relay listens")
        self._rule(node, "OUTPUT", f"-p tcp -m owner ! --uid-owner {NOBODY} --dport",
                   f"-j REDIRECT --to-ports {RELAY_PORT}", table="nat")

    def heal_reports(self, *nodes: str) -> None:
        """Take everything back; nothing happens where there is nothing."""
        script = (f"for table in filter nat; do iptables -w -t $table -S | grep -- '--comment {MARK}' | "
                  "sed 's/^-A/-D/' | while read -r rule; do iptables -w -t $table $rule; done; done; "
                  "pid=$(pgrep -f '[s]low_relay.py' || true); [ -z \"$pid\" ] || kill $pid")
        self.on_each(nodes or self.nodes, lambda node: self.run(node, ["sh", "-c", script], check=True))

    def _rule(self, node: str, chain: str, match: str, what: str, table: str = "filter") -> None:
        words = f"-t {table} -I {chain} 1 {match} {REPORT_PORT} -m comment --comment {MARK} {what}"
        self.run(node, ["iptables", "-w", *words.split()], check=True)
