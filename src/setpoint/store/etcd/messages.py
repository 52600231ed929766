"""The messages of etcd's API that the store uses, as protobuf classes made from a table (`wire/proto_messages.py`)."""

from __future__ import annotations

from typing import Any

from setpoint.wire.proto_messages import message_classes

_TABLE = """
ResponseHeader: cluster_id 1 uint64, member_id 2 uint64, revision 3 int64, raft_term 4 uint64
KeyValue: key 1 bytes, create_revision 2 int64, mod_revision 3 int64, version 4 int64, value 5 bytes, lease 6 int64
Event: type 1 int32, kv 2 KeyValue
RangeRequest: key 1 bytes, range_end 2 bytes, limit 3 int64, revision 4 int64, serializable 7 bool, keys_only 8 bool
RangeResponse: header 1 ResponseHeader, kvs 2 KeyValue*, more 3 bool, count 4 int64
PutRequest: key 1 bytes, value 2 bytes
PutResponse: header 1 ResponseHeader
DeleteRangeRequest: key 1 bytes, range_end 2 bytes
DeleteRangeResponse: header 1 ResponseHeader, deleted 2 int64
RequestOp: request_range 1 RangeRequest, request_put 2 PutRequest, request_delete_range 3 DeleteRangeRequest
Compare: result 1 int32, target 2 int32, key 3 bytes, version 4 int64, mod_revision 6 int64,\
 range_end 64 bytes
TxnRequest: compare 1 Compare*, success 2 RequestOp*, failure 3 RequestOp*
TxnResponse: header 1 ResponseHeader, succeeded 2 bool
CompactionRequest: revision 1 int64, physical 2 bool
CompactionResponse: header 1 ResponseHeader
WatchCreateRequest: key 1 bytes, range_end 2 bytes, start_revision 3 int64, watch_id 7 int64, fragment 8 bool
WatchRequest: create_request 1 WatchCreateRequest
WatchResponse: header 1 ResponseHeader, watch_id 2 int64, created 3 bool, canceled 4 bool, compact_revision 5 int64,\
 cancel_reason 6 string, fragment 7 bool, events 11 Event*
StatusRequest:
StatusResponse: header 1 ResponseHeader, version 2 string, dbSize 3 int64, leader 4 uint64, errors 8 string*,\
 isLearner 10 bool
Member: ID 1 uint64, name 2 string, peerURLs 3 string*, clientURLs 4 string*, isLearner 5 bool
MemberAddRequest: peerURLs 1 string*, isLearner 2 bool
MemberRemoveRequest: ID 1 uint64
MemberPromoteRequest: ID 1 uint64
MemberListRequest:
MembersResponse: header 1 ResponseHeader, members 2 Member*
MemberAddResponse: header 1 ResponseHeader, members 3 Member*
"""

EQUAL = 0
"""The result that a Compare demands."""
VERSION, MOD = 0, 2
"""The targets of a Compare: the number of changes of the key, and the revision of the last one."""
DELETE = 1
"""The type of an Event that deletes its key."""

_CLASSES = message_classes("setpoint.etcd", _TABLE)
RangeRequest: Any = _CLASSES["RangeRequest"]
RangeResponse: Any = _CLASSES["RangeResponse"]
TxnRequest: Any = _CLASSES["TxnRequest"]
TxnResponse: Any = _CLASSES["TxnResponse"]
CompactionRequest: Any = _CLASSES["CompactionRequest"]
CompactionResponse: Any = _CLASSES["CompactionResponse"]
WatchRequest: Any = _CLASSES["WatchRequest"]
WatchResponse: Any = _CLASSES["WatchResponse"]
StatusRequest: Any = _CLASSES["StatusRequest"]
StatusResponse: Any = _CLASSES["StatusResponse"]
MemberAddRequest: Any = _CLASSES["MemberAddRequest"]
MemberAddResponse: Any = _CLASSES["MemberAddResponse"]
MemberRemoveRequest: Any = _CLASSES["MemberRemoveRequest"]
MemberPromoteRequest: Any = _CLASSES["MemberPromoteRequest"]
MemberListRequest: Any = _CLASSES["MemberListRequest"]
MembersResponse: Any = _CLASSES["MembersResponse"]
"""The answer to MemberList, MemberRemove and MemberPromote."""
