"""One NameNode and its DataNodes, each a process of its own, on ports that were free."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import urllib.request
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from tools.hdfs import jars
from tools.hdfs.java import Java
from tools.servers import HOST, NotAvailableError, Servers, free_ports

NAME_NODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
DATA_NODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
ADMIN = "org.apache.hadoop.hdfs.tools.DFSAdmin"
ARCHIVED = {"namenode": NAME_NODE, "datanode2": DATA_NODE}
"""Servers that leave an archive of their classes, see `java`."""
LOGGING = """
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c: %m%n
"""
METRICS_SECONDS = 1
"""How old metrics may be."""
METRICS = f"*.period={METRICS_SECONDS}\n"
SETTINGS = {
    "dfs.replication": 3,
    "dfs.blocksize": 1 << 20,
    "dfs.namenode.fs-limits.min-block-size": 1 << 10,
    "dfs.heartbeat.interval": 1,
    "dfs.namenode.heartbeat.recheck-interval": 500,  # a dead DataNode is noticed after 11 s
    "dfs.namenode.redundancy.interval.seconds": 1,
    # Of three DataNodes, the busiest is soon twice as busy as the mean: blocks would leave it out.
    "dfs.namenode.redundancy.considerLoad": "false",
    "dfs.namenode.safemode.extension": 0,
    "dfs.namenode.safemode.min.datanodes": 1,
    "dfs.namenode.datanode.registration.ip-hostname-check": "false",
    "dfs.namenode.handler.count": 10,
    "dfs.namenode.edits.noeditlogchannelflush": "true",  # the machine outlives the NameNode
    "dfs.datanode.handler.count": 2,
    "dfs.datanode.hostname": HOST,
    "dfs.datanode.directoryscan.interval": -1,
    "dfs.block.scanner.volume.bytes.per.second": 0,
    "dfs.client.block.write.replace-datanode-on-failure.best-effort": "true",
    "dfs.permissions.enabled": "true",
    "ipc.client.connect.retry.interval": 200,
    "ipc.client.connect.max.retries": 100,
    "hadoop.http.max.threads": 16,
}


class Cluster(Servers):
    """A NameNode and DataNodes, from `start` until `stop`; a context manager.

    Parameters
    ----------
    folder
        Where they keep everything: must not exist, and does not afterwards.
    data_nodes
        How many.
    settings
        Of ``hdfs-site.xml``, beside `SETTINGS`.
    """

    what = "HDFS"

    def __init__(
        self, folder: Path, *, data_nodes: int = 3, settings: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(folder)
        self.data_nodes = data_nodes
        self.port, self.web_port = free_ports(2)
        self._data_ports = [free_ports(3) for _ in range(data_nodes)]
        self._settings = {**SETTINGS, **(settings or {})}
        self._configuration = self.folder / "conf.jar"

    @property
    def url(self) -> str:
        """The root of the file system."""
        return f"hdfs://{HOST}:{self.port}"

    @property
    def web_url(self) -> str:
        """The same over WebHDFS."""
        return f"webhdfs://{HOST}:{self.web_port}"

    def _check(self) -> None:
        self._java = Java()

    def _start_all(self) -> None:
        self._configure()
        self._format()
        self.start_name_node(wait=False)
        for number in range(self.data_nodes):
            self.start_data_node(number, wait=False)
        self.wait()

    def stop(self) -> None:
        """End everything, and delete the folder; a second call does nothing."""
        drafts = {name: draft for name in self._processes if (draft := self._draft(name))}
        for name in drafts:  # they write archives of their classes, if there are none yet
            self._processes[name].terminate()
        for name, draft in drafts.items():
            self.kill(name, signal.SIGTERM)
            self._java.keep(ARCHIVED[name], draft)
        super().stop()

    def wait(self, live: int | None = None) -> None:
        """Wait until so many DataNodes (None: those that run) are live, and safe mode is over."""
        if live is None:
            live = sum(name.startswith("datanode") for name in self._processes)

        def ready() -> bool:
            state = self.metrics("NameNode", "FSNamesystemState")
            if state["NumLiveDataNodes"] != live or state["FSState"] != "Operational":
                return False
            # The NameNode misses one that was killed only after some seconds.
            running = [n for n in range(self.data_nodes) if f"datanode{n}" in self._processes]
            told = [self.metrics("DataNode", "DataNodeInfo", number) for number in running]
            return all('"RUNNING"' in each["BPServiceActorInfo"] for each in told)

        self.until(ready, "HDFS")

    def start_name_node(self, *, wait: bool = True) -> None:
        """Start the NameNode, with what it had before."""
        self._run_java("namenode", NAME_NODE)
        if wait:
            self.wait()

    def start_data_node(self, number: int, *, wait: bool = True) -> None:
        """Start a DataNode, with the blocks that it had before."""
        data, http, ipc = self._data_ports[number]
        given = {
            "dfs.datanode.address": f"{HOST}:{data}",
            "dfs.datanode.http.address": f"{HOST}:{http}",
            "dfs.datanode.ipc.address": f"{HOST}:{ipc}",
            "dfs.datanode.data.dir": f"file://{self.folder}/data{number}",
        }
        self._run_java(f"datanode{number}", DATA_NODE, given)
        if wait:
            self.wait()

    def repair(self) -> None:
        """Start every server that does not run."""
        if "namenode" not in self._processes:
            self.start_name_node(wait=False)
        for number in range(self.data_nodes):
            if f"datanode{number}" not in self._processes:
                self.start_data_node(number, wait=False)
        self.wait()

    def admin(self, *arguments: str) -> str:
        """What ``hdfs dfsadmin`` prints.

        Raises
        ------
        subprocess.CalledProcessError
            It failed.
        """
        draft = self.folder / "admin.jsa"
        command = self._java.command(self._configuration, ADMIN, draft=draft)
        command += ["-fs", self.url, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        self._java.keep(ADMIN, draft)
        return done.stdout

    def metrics(self, service: str, name: str, number: int | None = None) -> dict[str, Any]:
        """A bean of a server, by JMX over HTTP.

        Parameters
        ----------
        service, name
            Of the bean; a ``*`` stands for any text.
        number
            Of the DataNode; None: the NameNode.
        """
        port = self.web_port if number is None else self._data_ports[number][1]
        query = f"http://{HOST}:{port}/jmx?qry=Hadoop:service={service},name={name}"
        with urllib.request.urlopen(query, timeout=10) as reply:
            beans: list[dict[str, Any]] = json.load(reply)["beans"]
        if not beans:
            raise KeyError(f"no bean {service}, {name}")
        return beans[0]

    def blocks_read(self) -> list[dict[str, int]]:
        """What each DataNode that runs has served: blocks, bytes, and for whom."""
        counters = ("BlocksRead", "BytesRead", "ReadsFromLocalClient", "ReadsFromRemoteClient")
        running = [n for n in range(self.data_nodes) if f"datanode{n}" in self._processes]
        found = [self.metrics("DataNode", "DataNodeActivity-*", number) for number in running]
        return [{name: int(each[name]) for name in counters} for each in found]

    def calls(self) -> dict[str, int]:
        """How often each call was made to the NameNode by clients, by name."""
        bean = self.metrics("NameNode", f"RpcDetailedActivityForPort{self.port}")
        return {
            name.removesuffix("NumOps"): int(count)
            for name, count in bean.items()
            if name.endswith("NumOps") and count
        }

    def _configure(self) -> None:
        configuration = self.folder / "conf"
        configuration.mkdir()
        (configuration / "log4j2.properties").write_text(LOGGING)
        (configuration / "hadoop-metrics2.properties").write_text(METRICS)
        write_settings(configuration / "core-site.xml", {"fs.defaultFS": self.url})
        everywhere = {
            "dfs.namenode.rpc-address": f"{HOST}:{self.port}",
            "dfs.namenode.http-address": f"{HOST}:{self.web_port}",
            "dfs.namenode.name.dir": f"file://{self.folder}/name",
            "hadoop.tmp.dir": f"{self.folder}/tmp",
            **self._settings,
        }
        write_settings(configuration / "hdfs-site.xml", everywhere)
        with zipfile.ZipFile(self._configuration, "w") as archive:
            for file in configuration.iterdir():
                archive.write(file, file.name)

    def _format(self) -> None:
        """Give the NameNode an empty file system: formatted once, copied afterwards."""
        formatted = jars.BUILD / f"formatted-{jars.VERSION}"
        if not formatted.exists():
            command = self._java.command(self._configuration, NAME_NODE)
            self._run_to_end("format", *command, "-format", "-nonInteractive")
            draft = formatted.with_name(f"{formatted.name}.{os.getpid()}")
            shutil.copytree(self.folder / "name", draft)
            try:
                draft.rename(formatted)
            except OSError:  # another process was first
                shutil.rmtree(draft)
        else:
            shutil.copytree(formatted, self.folder / "name")

    def _run_to_end(self, name: str, *command: str) -> None:
        log = self.folder / f"{name}.log"
        with log.open("wb") as stream:
            code = subprocess.run(command, stdout=stream, stderr=stream, check=False).returncode
        if code != 0:
            raise NotAvailableError(f"{name} of HDFS failed: {self.log(name)[-2000:]}")

    def _run_java(self, name: str, program: str, defined: Mapping[str, Any] | None = None) -> None:
        draft = self._draft(name)
        self._run(name, self._java.command(self._configuration, program, defined, draft=draft))

    def _draft(self, name: str) -> Path | None:
        """Where a server leaves an archive of its classes: one of each kind does."""
        return self.folder / f"{name}.jsa" if name in ARCHIVED else None


def write_settings(file: Path, settings: Mapping[str, Any]) -> None:
    """Write a configuration file of Hadoop."""
    properties = "".join(
        f"<property><name>{escape(name)}</name><value>{escape(str(value))}</value></property>\n"
        for name, value in settings.items()
    )
    file.write_text(f"<configuration>\n{properties}</configuration>\n")
