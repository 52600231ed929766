"""The messages of the Container Runtime Interface v1 that a node uses, as protobuf classes made from a table.

`wire/proto_messages.py` describes the format of the table; `tools/check_cri_messages.py` compares it with the published
definition. Requests are built from plain dicts with the names of the table, responses are objects with attributes. The
values of enumerations are in `node/cri/enums.py`. Environment variables (`KeyValue.value`) and the output of ExecSync
are bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from setpoint.wire.proto_messages import decode, message_classes

CRI_TABLE = """
Int64Value: value 1 int64
UInt64Value: value 1 uint64
VersionRequest: version 1 string
VersionResponse: version 1 string, runtime_name 2 string, runtime_version 3 string, runtime_api_version 4 string
StatusRequest: verbose 1 bool
StatusResponse: status 1 RuntimeStatus, info 2 string>string, runtime_handlers 3 RuntimeHandler*,\
 features 4 RuntimeFeatures
RuntimeStatus: conditions 1 RuntimeCondition*
RuntimeCondition: type 1 string, status 2 bool, reason 3 string, message 4 string
RuntimeHandler: name 1 string, features 2 RuntimeHandlerFeatures
RuntimeHandlerFeatures: recursive_read_only_mounts 1 bool, user_namespaces 2 bool
RuntimeFeatures: supplemental_groups_policy 1 bool, user_namespaces_host_network 2 bool, mount_options 3 bool
RuntimeConfigRequest:
RuntimeConfigResponse: linux 1 LinuxRuntimeConfiguration
LinuxRuntimeConfiguration: cgroup_driver 1 int32
UpdateRuntimeConfigRequest: runtime_config 1 RuntimeConfig
UpdateRuntimeConfigResponse:
RuntimeConfig: network_config 1 NetworkConfig
NetworkConfig: pod_cidr 1 string
PodSandboxMetadata: name 1 string, uid 2 string, namespace 3 string, attempt 4 uint32
PodSandboxConfig: metadata 1 PodSandboxMetadata, hostname 2 string, log_directory 3 string, dns_config 4 DNSConfig,\
 port_mappings 5 PortMapping*, labels 6 string>string, annotations 7 string>string, linux 8 LinuxPodSandboxConfig
DNSConfig: servers 1 string*, searches 2 string*, options 3 string*
PortMapping: protocol 1 int32, container_port 2 int32, host_port 3 int32, host_ip 4 string
LinuxPodSandboxConfig: cgroup_parent 1 string, security_context 2 LinuxSandboxSecurityContext,\
 sysctls 3 string>string, overhead 4 LinuxContainerResources, resources 5 LinuxContainerResources
LinuxSandboxSecurityContext: namespace_options 1 NamespaceOption, selinux_options 2 SELinuxOption,\
 run_as_user 3 Int64Value, readonly_rootfs 4 bool, supplemental_groups 5 int64*, privileged 6 bool,\
 seccomp_profile_path 7 string, run_as_group 8 Int64Value, seccomp 9 SecurityProfile, apparmor 10 SecurityProfile,\
 supplemental_groups_policy 11 int32
NamespaceOption: network 1 int32, pid 2 int32, ipc 3 int32, target_id 4 string, userns_options 5 UserNamespace
UserNamespace: mode 1 int32, uids 2 IDMapping*, gids 3 IDMapping*
IDMapping: host_id 1 uint32, container_id 2 uint32, length 3 uint32
SELinuxOption: user 1 string, role 2 string, type 3 string, level 4 string
SecurityProfile: profile_type 1 int32, localhost_ref 2 string
RunPodSandboxRequest: config 1 PodSandboxConfig, runtime_handler 2 string
RunPodSandboxResponse: pod_sandbox_id 1 string
StopPodSandboxRequest: pod_sandbox_id 1 string
StopPodSandboxResponse:
RemovePodSandboxRequest: pod_sandbox_id 1 string
RemovePodSandboxResponse:
PodSandboxStatusRequest: pod_sandbox_id 1 string, verbose 2 bool
PodSandboxStatusResponse: status 1 PodSandboxStatus, info 2 string>string, containers_statuses 3 ContainerStatus*,\
 timestamp 4 int64
PodSandboxStatus: id 1 string, metadata 2 PodSandboxMetadata, state 3 int32, created_at 4 int64,\
 network 5 PodSandboxNetworkStatus, linux 6 LinuxPodSandboxStatus, labels 7 string>string,\
 annotations 8 string>string, runtime_handler 9 string
PodSandboxNetworkStatus: ip 1 string, additional_ips 2 PodIP*
PodIP: ip 1 string
LinuxPodSandboxStatus: namespaces 1 Namespace
Namespace: options 2 NamespaceOption
ListPodSandboxRequest: filter 1 PodSandboxFilter
ListPodSandboxResponse: items 1 PodSandbox*
PodSandboxFilter: id 1 string, state 2 PodSandboxStateValue, label_selector 3 string>string
PodSandboxStateValue: state 1 int32
PodSandbox: id 1 string, metadata 2 PodSandboxMetadata, state 3 int32, created_at 4 int64, labels 5 string>string,\
 annotations 6 string>string, runtime_handler 7 string
UpdatePodSandboxResourcesRequest: pod_sandbox_id 1 string, overhead 2 LinuxContainerResources,\
 resources 3 LinuxContainerResources
UpdatePodSandboxResourcesResponse:
ContainerMetadata: name 1 string, attempt 2 uint32
ContainerConfig: metadata 1 ContainerMetadata, image 2 ImageSpec, command 3 string*, args 4 string*,\
 working_dir 5 string, envs 6 KeyValue*, mounts 7 Mount*, devices 8 Device*, labels 9 string>string,\
 annotations 10 string>string, log_path 11 string, stdin 12 bool, stdin_once 13 bool, tty 14 bool,\
 linux 15 LinuxContainerConfig, CDI_devices 17 CDIDevice*, stop_signal 18 int32
ImageSpec: image 1 string, annotations 2 string>string, user_specified_image 18 string, runtime_handler 19 string,\
 image_ref 20 string
KeyValue: key 1 string, value 2 bytes
Mount: container_path 1 string, host_path 2 string, readonly 3 bool, selinux_relabel 4 bool, propagation 5 int32,\
 uidMappings 6 IDMapping*, gidMappings 7 IDMapping*, recursive_read_only 8 bool, image 9 ImageSpec,\
 image_sub_path 10 string, mount_options 11 string*
Device: container_path 1 string, host_path 2 string, permissions 3 string
CDIDevice: name 1 string
LinuxContainerConfig: resources 1 LinuxContainerResources, security_context 2 LinuxContainerSecurityContext
LinuxContainerResources: cpu_period 1 int64, cpu_quota 2 int64, cpu_shares 3 int64, memory_limit_in_bytes 4 int64,\
 oom_score_adj 5 int64, cpuset_cpus 6 string, cpuset_mems 7 string, hugepage_limits 8 HugepageLimit*,\
 unified 9 string>string, memory_swap_limit_in_bytes 10 int64
HugepageLimit: page_size 1 string, limit 2 uint64
LinuxContainerSecurityContext: capabilities 1 Capability, privileged 2 bool, namespace_options 3 NamespaceOption,\
 selinux_options 4 SELinuxOption, run_as_user 5 Int64Value, run_as_username 6 string, readonly_rootfs 7 bool,\
 supplemental_groups 8 int64*, apparmor_profile 9 string, seccomp_profile_path 10 string, no_new_privs 11 bool,\
 run_as_group 12 Int64Value, masked_paths 13 string*, readonly_paths 14 string*, seccomp 15 SecurityProfile,\
 apparmor 16 SecurityProfile, supplemental_groups_policy 17 int32
Capability: add_capabilities 1 string*, drop_capabilities 2 string*, add_ambient_capabilities 3 string*
CreateContainerRequest: pod_sandbox_id 1 string, config 2 ContainerConfig, sandbox_config 3 PodSandboxConfig
CreateContainerResponse: container_id 1 string
StartContainerRequest: container_id 1 string
StartContainerResponse:
StopContainerRequest: container_id 1 string, timeout 2 int64
StopContainerResponse:
RemoveContainerRequest: container_id 1 string
RemoveContainerResponse:
ListContainersRequest: filter 1 ContainerFilter
ListContainersResponse: containers 1 Container*
ContainerFilter: id 1 string, state 2 ContainerStateValue, pod_sandbox_id 3 string, label_selector 4 string>string
ContainerStateValue: state 1 int32
Container: id 1 string, pod_sandbox_id 2 string, metadata 3 ContainerMetadata, image 4 ImageSpec, image_ref 5 string,\
 state 6 int32, created_at 7 int64, labels 8 string>string, annotations 9 string>string, image_id 10 string
ContainerStatusRequest: container_id 1 string, verbose 2 bool
ContainerStatusResponse: status 1 ContainerStatus, info 2 string>string
ContainerStatus: id 1 string, metadata 2 ContainerMetadata, state 3 int32, created_at 4 int64, started_at 5 int64,\
 finished_at 6 int64, exit_code 7 int32, image 8 ImageSpec, image_ref 9 string, reason 10 string, message 11 string,\
 labels 12 string>string, annotations 13 string>string, mounts 14 Mount*, log_path 15 string,\
 resources 16 ContainerResources, image_id 17 string, user 18 ContainerUser, stop_signal 19 int32
ContainerResources: linux 1 LinuxContainerResources
ContainerUser: linux 1 LinuxContainerUser
LinuxContainerUser: uid 1 int64, gid 2 int64, supplemental_groups 3 int64*
UpdateContainerResourcesRequest: container_id 1 string, linux 2 LinuxContainerResources, annotations 4 string>string
UpdateContainerResourcesResponse:
ReopenContainerLogRequest: container_id 1 string
ReopenContainerLogResponse:
CheckpointContainerRequest: container_id 1 string, location 2 string, timeout 3 int64
CheckpointContainerResponse:
ExecSyncRequest: container_id 1 string, cmd 2 string*, timeout 3 int64
ExecSyncResponse: stdout 1 bytes, stderr 2 bytes, exit_code 3 int32
ExecRequest: container_id 1 string, cmd 2 string*, tty 3 bool, stdin 4 bool, stdout 5 bool, stderr 6 bool
ExecResponse: url 1 string
AttachRequest: container_id 1 string, stdin 2 bool, tty 3 bool, stdout 4 bool, stderr 5 bool
AttachResponse: url 1 string
PortForwardRequest: pod_sandbox_id 1 string, port 2 int32*
PortForwardResponse: url 1 string
ContainerStatsRequest: container_id 1 string
ContainerStatsResponse: stats 1 ContainerStats
ListContainerStatsRequest: filter 1 ContainerStatsFilter
ListContainerStatsResponse: stats 1 ContainerStats*
ContainerStatsFilter: id 1 string, pod_sandbox_id 2 string, label_selector 3 string>string
ContainerStats: attributes 1 ContainerAttributes, cpu 2 CpuUsage, memory 3 MemoryUsage,\
 writable_layer 4 FilesystemUsage, swap 5 SwapUsage, io 6 IoUsage
ContainerAttributes: id 1 string, metadata 2 ContainerMetadata, labels 3 string>string, annotations 4 string>string
CpuUsage: timestamp 1 int64, usage_core_nano_seconds 2 UInt64Value, usage_nano_cores 3 UInt64Value, psi 4 PsiStats
MemoryUsage: timestamp 1 int64, working_set_bytes 2 UInt64Value, available_bytes 3 UInt64Value,\
 usage_bytes 4 UInt64Value, rss_bytes 5 UInt64Value, page_faults 6 UInt64Value, major_page_faults 7 UInt64Value,\
 psi 8 PsiStats
SwapUsage: timestamp 1 int64, swap_available_bytes 2 UInt64Value, swap_usage_bytes 3 UInt64Value
IoUsage: timestamp 1 int64, psi 2 PsiStats
PsiStats: Full 1 PsiData, Some 2 PsiData
PsiData: Total 1 uint64, Avg10 2 double, Avg60 3 double, Avg300 4 double
PodSandboxStatsRequest: pod_sandbox_id 1 string
PodSandboxStatsResponse: stats 1 PodSandboxStats
ListPodSandboxStatsRequest: filter 1 PodSandboxStatsFilter
ListPodSandboxStatsResponse: stats 1 PodSandboxStats*
PodSandboxStatsFilter: id 1 string, label_selector 2 string>string
PodSandboxStats: attributes 1 PodSandboxAttributes, linux 2 LinuxPodSandboxStats
PodSandboxAttributes: id 1 string, metadata 2 PodSandboxMetadata, labels 3 string>string, annotations 4 string>string
LinuxPodSandboxStats: cpu 1 CpuUsage, memory 2 MemoryUsage, network 3 NetworkUsage, process 4 ProcessUsage,\
 containers 5 ContainerStats*, io 6 IoUsage
NetworkUsage: timestamp 1 int64, default_interface 2 NetworkInterfaceUsage, interfaces 3 NetworkInterfaceUsage*
NetworkInterfaceUsage: name 1 string, rx_bytes 2 UInt64Value, rx_errors 3 UInt64Value, tx_bytes 4 UInt64Value,\
 tx_errors 5 UInt64Value
ProcessUsage: timestamp 1 int64, process_count 2 UInt64Value
GetEventsRequest:
ContainerEventResponse: container_id 1 string, container_event_type 2 int32, created_at 3 int64,\
 pod_sandbox_status 4 PodSandboxStatus, containers_statuses 5 ContainerStatus*
Image: id 1 string, repo_tags 2 string*, repo_digests 3 string*, size 4 uint64, uid 5 Int64Value, username 6 string,\
 spec 7 ImageSpec, pinned 8 bool
ListImagesRequest: filter 1 ImageFilter
ListImagesResponse: images 1 Image*
ImageFilter: image 1 ImageSpec
ImageStatusRequest: image 1 ImageSpec, verbose 2 bool
ImageStatusResponse: image 1 Image, info 2 string>string
PullImageRequest: image 1 ImageSpec, auth 2 AuthConfig, sandbox_config 3 PodSandboxConfig
PullImageResponse: image_ref 1 string
AuthConfig: username 1 string, password 2 string, auth 3 string, server_address 4 string, identity_token 5 string,\
 registry_token 6 string
RemoveImageRequest: image 1 ImageSpec
RemoveImageResponse:
ImageFsInfoRequest:
ImageFsInfoResponse: image_filesystems 1 FilesystemUsage*, container_filesystems 2 FilesystemUsage*
FilesystemUsage: timestamp 1 int64, fs_id 2 FilesystemIdentifier, used_bytes 3 UInt64Value, inodes_used 4 UInt64Value
FilesystemIdentifier: mountpoint 1 string
"""

_CONTAINERD_TABLE = """
SubscribeRequest: filters 1 string*
Envelope: timestamp 1 Timestamp, namespace 2 string, topic 3 string, event 4 AnyMessage
Timestamp: seconds 1 int64, nanos 2 int32
AnyMessage: type_url 1 string, value 2 bytes
TaskEvent: container_id 1 string, process_id 2 string
"""
"""The envelope of containerd's events. TaskEvent has the first fields of all events of tasks; the second one is the
process of an exit, which is that of the container itself if it is the container's id. In other events the second field
has another type or meaning, and the decoder skips it if the type is another one."""

RUNTIME_METHODS = (
    "Version",
    "Status",
    "RuntimeConfig",
    "UpdateRuntimeConfig",
    "RunPodSandbox",
    "StopPodSandbox",
    "RemovePodSandbox",
    "PodSandboxStatus",
    "ListPodSandbox",
    "UpdatePodSandboxResources",
    "CreateContainer",
    "StartContainer",
    "StopContainer",
    "RemoveContainer",
    "ListContainers",
    "ContainerStatus",
    "UpdateContainerResources",
    "ReopenContainerLog",
    "CheckpointContainer",
    "ExecSync",
    "Exec",
    "Attach",
    "PortForward",
    "ContainerStats",
    "ListContainerStats",
    "PodSandboxStats",
    "ListPodSandboxStats",
)
IMAGE_METHODS = ("ListImages", "ImageStatus", "PullImage", "RemoveImage", "ImageFsInfo")


class Method(NamedTuple):
    """A method of the interface with the classes of its messages."""

    path: str
    """The path of the method's requests: `/package.Service/Method`."""
    request: Any
    response: Any

    def decode(self, data: bytes) -> Any:
        """Return a response. Raise ValueError if it is malformed."""
        return decode(self.response, data)


CLASSES = message_classes("setpoint.cri", CRI_TABLE)
"""The classes of CRI's messages by name."""

METHODS = {
    name: Method(f"/runtime.v1.{service}/{name}", CLASSES[f"{name}Request"], CLASSES[f"{name}Response"])
    for service, names in (("RuntimeService", RUNTIME_METHODS), ("ImageService", IMAGE_METHODS))
    for name in names
}
"""The methods with one response, by name."""

GET_CONTAINER_EVENTS = Method(
    "/runtime.v1.RuntimeService/GetContainerEvents", CLASSES["GetEventsRequest"], CLASSES["ContainerEventResponse"]
)
"""CRI's stream of events."""

_CONTAINERD = message_classes("setpoint.containerd", _CONTAINERD_TABLE)
SUBSCRIBE = Method(
    "/containerd.services.events.v1.Events/Subscribe", _CONTAINERD["SubscribeRequest"], _CONTAINERD["Envelope"]
)
"""The event stream of containerd's own API, which is served on the same socket as CRI."""
TaskEvent: Any = _CONTAINERD["TaskEvent"]


def decode_task_event(envelope: Any) -> Any:
    """Return the event of a task in an envelope of containerd. Raise ValueError if it is malformed."""
    return decode(TaskEvent, envelope.event.value)
