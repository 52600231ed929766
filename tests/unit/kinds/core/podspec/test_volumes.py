from typing import Any

import pytest

from setpoint.kinds.core.podspec.defaults import default_volume
from setpoint.kinds.core.podspec.volumes import validate_volumes
from setpoint.meta.field import FieldError


def messages(*sources: dict[str, Any], pod: str = "") -> list[str]:
    volumes = [{"name": f"v{i}", **source} for i, source in enumerate(sources)]
    for volume in volumes:
        default_volume(volume)
    errs: list[FieldError] = []
    validate_volumes(volumes, {"name": pod} if pod else None, "vs", errs)
    return [error.message() for error in errs]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"hostPath": {"path": "/a/../b"}}, ["vs[0].hostPath.path: Invalid value: \"/a/../b\": must not contain '..'"]),
        (
            {"hostPath": {"path": "/", "type": "X"}},
            [
                'vs[0].hostPath.type: Unsupported value: "X": supported values: "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"'
            ],
        ),
        ({"gcePersistentDisk": {}}, ["vs[0].persistentDisk.pdName: Required value"]),
        (
            {"secret": {"secretName": "s", "defaultMode": 512}},
            [
                "vs[0].secret.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive"
            ],
        ),
        ({"nfs": {"server": "s", "path": "p"}}, ['vs[0].nfs.path: Invalid value: "p": must be an absolute path']),
        (
            {"iscsi": {"targetPortal": "t", "iqn": "x"}},
            ['vs[0].iscsi.iqn: Invalid value: "x": must be valid format starting with iqn, eui, or naa'],
        ),
        ({"fc": {}}, ["vs[0].fc.targetWWNs: Required value: must specify either targetWWNs or wwids, but not both"]),
        ({"csi": {"driver": "a_b"}}, None),
        ({"image": {}}, ["vs[0].image.reference: Required value"]),
        (
            {"emptyDir": {"sizeLimit": "-1"}},
            ["vs[0].emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity"],
        ),
        (
            {"emptyDir": {}, "cephfs": {"monitors": ["m"]}},
            ["vs[0].cephFS: Forbidden: may not specify more than 1 volume type"],
        ),
        (
            {"downwardAPI": {"items": [{"path": "p"}]}},
            ["vs[0].downwardAPI: Required value: one of fieldRef and resourceFieldRef is required"],
        ),
        (
            {"projected": {"sources": [{"serviceAccountToken": {"path": "../t", "expirationSeconds": 1}}]}},
            [
                "vs[0].projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 1: may not specify a duration less than 10 minutes",
                "vs[0].projected.path: Invalid value: \"../t\": must not contain '..'",
            ],
        ),
        (
            {"projected": {"sources": [{"podCertificate": {"signerName": "x", "keyType": "ED25519", "keyPath": "k"}}]}},
            [
                "vs[0].projected.sources[0].podCertificate.signerName: Invalid value: \"x\": must be a fully qualified domain and path of the form 'example.com/signer-name'"
            ],
        ),
        (
            {
                "ephemeral": {
                    "volumeClaimTemplate": {
                        "metadata": {"name": "n"},
                        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "0"}}},
                    }
                }
            },
            [
                "vs[0].ephemeral.volumeClaimTemplate.metadata.name: Forbidden: cannot be set",
                'vs[0].ephemeral.volumeClaimTemplate.spec.resources[storage]: Invalid value: "0": must be greater than zero',
            ],
        ),
    ],
)
def test_sources(source: dict[str, Any], expected: list[str] | None) -> None:
    found = messages(source)
    assert found == expected if expected is not None else found


def test_name_conflict_with_the_claim_of_an_ephemeral_volume() -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}
    ephemeral, claim = (
        {"ephemeral": {"volumeClaimTemplate": {"spec": spec}}},
        {"persistentVolumeClaim": {"claimName": "p-v0"}},
    )
    assert messages(ephemeral, claim) == []
    assert messages(ephemeral, claim, pod="p") == [
        'vs[1].persistentVolumeClaim.claimName: Invalid value: "p-v0": '
        "must not reference a PVC that gets created for an ephemeral volume"
    ]
