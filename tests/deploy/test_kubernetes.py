"""deploy/kubernetes: every manifest by Kubernetes' own schemas, and its statements about the daemon by the daemon and its documents."""
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))
from conftest import BIN, Daemon  # noqa: E402

FOLDER = ROOT / "deploy/kubernetes"
FILES = sorted(FOLDER.glob("*.yaml"))
MANIFESTS = [(path.name, m) for path in FILES if path.name != "kustomization.yaml" for m in yaml.safe_load_all(path.read_text())]
OTHERS = {"PodMonitor", "ScaledObject", "InferencePool", "HTTPRoute"}  # custom resources: checked here, field by field
NAMES = [f"{name}:{m['kind']}:{m['metadata']['name']}" for name, m in MANIFESTS]
APP = {"app.kubernetes.io/name": "thermocline"}


def find(kind, name="thermocline"):
    found = [m for _, m in MANIFESTS if m["kind"] == kind and m["metadata"]["name"] == name]
    assert len(found) == 1, (kind, name)
    return found[0]


def walk(node):
    """All objects and values below one, with their keys."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield key, value
        yield from walk(value)


POD = find("StatefulSet")["spec"]["template"]
CONTAINER = POD["spec"]["containers"][0]
CONFIG_TEXT = find("ConfigMap")["data"]["thermocline.yaml"]
CONFIG = yaml.safe_load(CONFIG_TEXT)
PICKER = find("Deployment", "thermocline-picker")["spec"]["template"]
PICKER_CONFIG = yaml.safe_load(find("ConfigMap", "thermocline-picker")["data"]["config.yaml"])
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


# The newest schemas, and the oldest that know preStop's sleep without a feature gate.
@pytest.mark.parametrize("version", ["1.30", "1.37"])
@pytest.mark.parametrize("manifest", [m for _, m in MANIFESTS if m["kind"] not in OTHERS], ids=[n for n in NAMES if n.split(":")[1] not in OTHERS])
def test_manifests_follow_kubernetes_schemas(manifest, version):
    validator = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate (tests/run.sh does)")
    validator.validate(manifest, version, strict=True)


def test_the_schemas_notice_a_wrong_field():
    validator = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate (tests/run.sh does)")
    manifest = yaml.safe_load(yaml.safe_dump(find("StatefulSet")))
    manifest["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(validator.ValidationError):
        validator.validate(manifest, "1.37", strict=True)


def test_the_kustomization_names_every_file():
    text = (FOLDER / "kustomization.yaml").read_text()
    used = yaml.safe_load(text)["resources"]
    assert all((FOLDER / name).exists() for name in used)
    assert {name for name, _ in MANIFESTS} == set(re.findall(r"[\w-]+\.yaml", text))
    kinds = {m["kind"] for name, m in MANIFESTS if name in used}
    assert not kinds & OTHERS  # what is applied by default needs no custom resource
    assert "HorizontalPodAutoscaler" not in kinds


def test_no_manifest_has_a_namespace():
    assert not [name for name, m in MANIFESTS if "namespace" in m["metadata"]]


def test_the_daemon_accepts_the_configuration(tmp_path):
    """Also where the test names other folders, by `--set`, nothing else is changed."""
    path = tmp_path / "thermocline.yaml"
    path.write_text(CONFIG_TEXT)
    result = subprocess.run([str(BIN / "thermoclined"), "--config", str(path), "--set", f"server.admin_socket={tmp_path}/admin", "--check"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    mounts = [m["mountPath"] for m in CONTAINER["volumeMounts"]]
    assert str(Path(CONFIG["server"]["admin_socket"]).parent) in mounts
    assert CONTAINER["args"] == ["--config", "/etc/thermocline/thermocline.yaml"] and "/etc/thermocline" in mounts


def test_probes_ask_for_what_the_daemon_answers(tmp_path):
    path = tmp_path / "thermocline.yaml"
    path.write_text(CONFIG_TEXT)
    paths = {CONTAINER[probe]["httpGet"]["path"] for probe in PROBES} | {find("PodMonitor")["spec"]["podMetricsEndpoints"][0]["path"]}
    keys = tmp_path / "keys"
    keys.write_bytes(subprocess.run([str(BIN / "thermoclined"), "--hash-key", "someone"], input=b"a-key-of-someone\n", capture_output=True, check=True).stdout)
    with Daemon("server.host=127.0.0.1", "engine.threads=1", config=path) as d:
        assert {p: httpx.get(d.url + p).status_code for p in paths} == {p: 200 for p in paths}
        # Kubernetes calls a pod by its address: any Host is allowed.
        assert httpx.get(d.url + "/health/ready", headers={"host": "10.244.1.7:8080"}).status_code == 200
    with Daemon("server.host=127.0.0.1", "engine.threads=1", f"server.api_keys_file={keys}", config=path) as d:
        assert httpx.get(d.url + CONTAINER["livenessProbe"]["httpGet"]["path"]).status_code == 200
        assert httpx.get(d.url + "/health/ready").status_code == 401  # hence the note on the admin socket
        assert d.admin.get("/health/ready").status_code == httpx.get(d.url + "/metrics").status_code == 200
        assert httpx.get(d.url + "/admin/requests", headers={"authorization": "Bearer a-key-of-someone"}).status_code == 403
    assert CONTAINER["startupProbe"]["httpGet"]["path"] == CONTAINER["readinessProbe"]["httpGet"]["path"] == "/health/ready"
    assert CONTAINER["livenessProbe"]["httpGet"]["path"] == "/health/live"


def test_a_drain_ends_before_kubernetes_ends_it():
    prestop = CONTAINER["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert POD["spec"]["terminationGracePeriodSeconds"] >= prestop + CONFIG["server"]["drain_timeout_s"] + 5
    assert PICKER["spec"]["terminationGracePeriodSeconds"] >= POD["spec"]["terminationGracePeriodSeconds"]


def test_metrics_are_documented():
    documented = set(re.findall(r"`(thermocline_\w+)`", (ROOT / "docs/metrics.md").read_text()))
    named = {(path.name, name) for path in FILES for name in re.findall(r"thermocline_[a-z_]+", path.read_text())}
    assert named and not {(file, name) for file, name in named if name not in documented}


def test_ports_agree():
    ports = {p["name"]: p["containerPort"] for p in CONTAINER["ports"]}
    assert ports == {"http": CONFIG["server"]["port"]}
    for name in ("thermocline", "thermocline-pods"):
        assert all(p["targetPort"] == "http" and p["port"] == ports["http"] for p in find("Service", name)["spec"]["ports"])
    assert all(CONTAINER[probe]["httpGet"]["port"] == "http" for probe in PROBES)
    assert [e["port"] for e in find("PodMonitor")["spec"]["podMetricsEndpoints"]] == ["http"]
    assert [p["port"] for rule in find("NetworkPolicy")["spec"]["ingress"] for p in rule["ports"]] == ["http"]
    assert find("InferencePool")["spec"]["targetPorts"] == [{"number": ports["http"]}]
    picker = {p["name"]: p["containerPort"] for p in PICKER["spec"]["containers"][0]["ports"]}
    service = find("Service", "thermocline-picker")["spec"]["ports"]
    assert [(p["targetPort"], p["port"]) for p in service] == [("grpc", picker["grpc"])]
    assert find("InferencePool")["spec"]["endpointPickerRef"]["port"]["number"] == picker["grpc"]


def test_selectors_find_the_pods():
    assert POD["metadata"]["labels"] == APP == find("StatefulSet")["spec"]["selector"]["matchLabels"]
    for kind in ("PodDisruptionBudget", "PodMonitor", "InferencePool"):
        assert find(kind)["spec"]["selector"]["matchLabels"] == APP, kind
    assert find("NetworkPolicy")["spec"]["podSelector"]["matchLabels"] == APP
    assert find("Service")["spec"]["selector"] == find("Service", "thermocline-pods")["spec"]["selector"] == APP
    assert find("StatefulSet")["spec"]["serviceName"] == "thermocline-pods"
    for kind in ("ScaledObject", "HorizontalPodAutoscaler"):
        assert find(kind)["spec"]["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "thermocline"}
    assert find("Service", "thermocline-picker")["spec"]["selector"].items() <= PICKER["metadata"]["labels"].items()
    allowed = find("NetworkPolicy")["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"]
    assert allowed.items() <= PICKER["metadata"]["labels"].items()  # the picker scrapes the pods


@pytest.mark.parametrize("pod", [POD, PICKER], ids=["daemon", "picker"])
def test_pods_have_few_rights(pod):
    spec = pod["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True and spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        rights = container["securityContext"]
        assert rights["readOnlyRootFilesystem"] is True and rights["allowPrivilegeEscalation"] is False and rights["capabilities"] == {"drop": ["ALL"]}
    mounted = {m["name"] for c in spec["containers"] for m in c["volumeMounts"]}
    claims = {c["metadata"]["name"] for c in find("StatefulSet")["spec"]["volumeClaimTemplates"]}
    assert mounted <= {v["name"] for v in spec["volumes"]} | claims


def test_whole_processors():
    """The daemon counts the processors that it may use, which a quota does not change."""
    resources = CONTAINER["resources"]
    assert resources["requests"] == resources["limits"] and int(resources["limits"]["cpu"]) == CONFIG["engine"]["threads"]


# Custom resources, whose schemas no package brings.

def keys_of(node, required, optional=()):
    assert set(required) <= set(node) <= {*required, *optional}, node
    return node


def test_custom_resources_have_the_fields_of_their_definitions():
    versions = {m["kind"]: m["apiVersion"] for _, m in MANIFESTS if m["kind"] in OTHERS}
    assert versions == {"PodMonitor": "monitoring.coreos.com/v1", "ScaledObject": "keda.sh/v1alpha1",
                        "InferencePool": "inference.networking.k8s.io/v1", "HTTPRoute": "gateway.networking.k8s.io/v1"}
    pool = keys_of(find("InferencePool")["spec"], ["selector", "targetPorts", "endpointPickerRef"], ["appProtocol"])
    keys_of(pool["selector"], ["matchLabels"])
    keys_of(pool["endpointPickerRef"], ["name", "port"], ["group", "kind", "failureMode"])
    assert pool["endpointPickerRef"]["failureMode"] in ("FailOpen", "FailClose")
    scaled = keys_of(find("ScaledObject")["spec"], ["scaleTargetRef", "triggers"], ["minReplicaCount", "maxReplicaCount", "pollingInterval", "cooldownPeriod", "advanced"])
    (trigger,) = scaled["triggers"]
    assert trigger["type"] == "prometheus" and {type(v) for v in keys_of(trigger["metadata"], ["serverAddress", "query", "threshold"]).values()} == {str}
    hpa = find("HorizontalPodAutoscaler")["spec"]
    assert (hpa["minReplicas"], hpa["maxReplicas"]) == (scaled["minReplicaCount"], scaled["maxReplicaCount"])
    assert hpa["behavior"] == scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    keys_of(find("PodMonitor")["spec"], ["selector", "podMetricsEndpoints"])
    route = keys_of(find("HTTPRoute")["spec"], ["parentRefs", "rules"])
    assert [b["name"] for rule in route["rules"] for b in rule["backendRefs"]] == ["thermocline"]
    assert [m["path"]["value"] for rule in route["rules"] for m in rule["matches"]] == ["/v1"]  # no /metrics, no /admin


def test_the_picker_reads_our_metrics():
    plugins = {p["type"]: p for p in PICKER_CONFIG["plugins"]}
    profile = [p["pluginRef"] for p in PICKER_CONFIG["schedulingProfiles"][0]["plugins"]]
    assert set(profile) <= set(plugins)
    extractor = keys_of(plugins["core-metrics-extractor"]["parameters"], ["defaultEngine", "engineConfigs"])
    (engine,) = extractor["engineConfigs"]
    keys_of(engine, ["name", "queuedRequestsSpec", "runningRequestsSpec", "kvUsageSpec", "loraSpec", "cacheInfoSpec"])
    assert engine["name"] == extractor["defaultEngine"]
    (container,) = PICKER["spec"]["containers"]
    assert "--pool-name=" + find("InferencePool")["metadata"]["name"] in container["args"]
    config = next(a.split("=")[1] for a in container["args"] if a.startswith("--config-file="))
    assert Path(config).name in find("ConfigMap", "thermocline-picker")["data"]
    assert str(Path(config).parent) == container["volumeMounts"][0]["mountPath"]
    with Daemon("engine.threads=1") as d:
        text = httpx.get(d.url + "/metrics").text
    for name in ("queuedRequestsSpec", "runningRequestsSpec", "kvUsageSpec"):
        assert re.search(rf"^{engine[name]} [\d.e+-]+$", text, re.M), name
