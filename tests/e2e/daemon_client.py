"""Shared parts of the daemon's tests: a chat request, its metrics."""
import json

import httpx
from prometheus_client.parser import text_string_to_metric_families

STORY = [{"role": "user", "content": "Tell me a story about an owl."}]


def metrics(daemon):
    """Samples by name and sorted labels."""
    text = httpx.get(daemon.url + "/metrics").text
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for f in text_string_to_metric_families(text) for s in f.samples}


def value(daemon, name, **labels):
    return metrics(daemon).get(("thermocline_" + name, tuple(sorted(labels.items()))), 0)


def post(daemon, body, **kwargs):
    content = body if isinstance(body, (bytes, str)) else json.dumps(body)
    return httpx.post(daemon.url + "/v1/chat/completions", content=content, timeout=60, **kwargs)
