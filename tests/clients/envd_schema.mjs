// The messages and services of envd, written down once more from the document for a client of another make: connect-node
// encodes and decodes by this, so a number that differs from the server's shows.
import { create, createFileRegistry } from '@bufbuild/protobuf'
import { FieldDescriptorProto_Label as Label, FieldDescriptorProto_Type as Type, FileDescriptorProtoSchema, FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt'

const scalars = { string: Type.STRING, bool: Type.BOOL, bytes: Type.BYTES, uint32: Type.UINT32, int32: Type.INT32, int64: Type.INT64, sint32: Type.SINT32 }

// "repeated T name = 1", "optional T name = 1", "oneof.NAME T name = 1", "map name = 1"
function field(text, packageName, message, extra) {
  const [, prefix, type, name, number] = /^(?:(repeated|optional|oneof\.\w+) )?(\S+) (\w+) = (\d+)$/.exec(text)
  const result = { name, number: +number, label: prefix === 'repeated' || type === 'map' ? Label.REPEATED : Label.OPTIONAL }
  if (type in scalars) result.type = scalars[type]
  else if (type === 'map') {
    const entry = name[0].toUpperCase() + name.slice(1) + 'Entry'
    message.nestedType.push({ name: entry, options: { mapEntry: true }, field: [
      { name: 'key', number: 1, label: Label.OPTIONAL, type: Type.STRING }, { name: 'value', number: 2, label: Label.OPTIONAL, type: Type.STRING }] })
    Object.assign(result, { type: Type.MESSAGE, typeName: `.${packageName}.${message.name}.${entry}` })
  } else Object.assign(result, { type: extra.enums.includes(type) ? Type.ENUM : Type.MESSAGE, typeName: `.${packageName}.${type}` })
  if (prefix === 'optional') {
    result.proto3Optional = true
    result.oneofIndex = message.oneofDecl.push({ name: `_${name}` }) - 1
  } else if (prefix?.startsWith('oneof.')) {
    const at = message.oneofDecl.findIndex(o => o.name === prefix.slice(6))
    result.oneofIndex = at >= 0 ? at : message.oneofDecl.push({ name: prefix.slice(6) }) - 1
  }
  message.field.push(result)
}

function file(packageName, enums, messages, service, methods) {
  const extra = { enums: Object.keys(enums) }
  return create(FileDescriptorProtoSchema, {
    name: `${packageName}.proto`, package: packageName, syntax: 'proto3',
    enumType: Object.entries(enums).map(([name, values]) => ({ name, value: Object.entries(values).map(([n, number]) => ({ name: n, number })) })),
    messageType: Object.entries(messages).map(([name, fields]) => {
      const message = { name, field: [], nestedType: [], oneofDecl: [] }
      // Declared oneofs come before those of optional fields.
      for (const f of [...fields].sort((a, b) => a.startsWith('optional') - b.startsWith('optional'))) field(f, packageName, message, extra)
      return message
    }),
    service: [{ name: service, method: Object.entries(methods).map(([name, [input, output, streams = '']]) => ({
      name, inputType: `.${packageName}.${input}`, outputType: `.${packageName}.${output}`, clientStreaming: streams === 'client', serverStreaming: streams === 'server' })) }],
  })
}

const processFile = file('process', { Signal: { SIGNAL_UNSPECIFIED: 0, SIGNAL_SIGKILL: 9, SIGNAL_SIGTERM: 15 } }, {
  Empty: [], Size: ['uint32 cols = 1', 'uint32 rows = 2'], PTY: ['Size size = 1'],
  ProcessConfig: ['string cmd = 1', 'repeated string args = 2', 'map envs = 3', 'optional string cwd = 4'],
  ProcessInfo: ['ProcessConfig config = 1', 'uint32 pid = 2', 'optional string tag = 3'],
  ListResponse: ['repeated ProcessInfo processes = 1'],
  StartRequest: ['ProcessConfig process = 1', 'PTY pty = 2', 'optional string tag = 3', 'optional bool stdin = 4'],
  StartEvent: ['uint32 pid = 1'],
  DataEvent: ['oneof.output bytes stdout = 1', 'oneof.output bytes stderr = 2', 'oneof.output bytes pty = 3'],
  EndEvent: ['sint32 exit_code = 1', 'bool exited = 2', 'string status = 3', 'optional string error = 4'],
  ProcessEvent: ['oneof.event StartEvent start = 1', 'oneof.event DataEvent data = 2', 'oneof.event EndEvent end = 3', 'oneof.event Empty keepalive = 4'],
  EventResponse: ['ProcessEvent event = 1'],
  Selector: ['oneof.selector uint32 pid = 1', 'oneof.selector string tag = 2'],
  SelectRequest: ['Selector process = 1'],
  Input: ['oneof.input bytes stdin = 1', 'oneof.input bytes pty = 2'],
  SendInputRequest: ['Selector process = 1', 'Input input = 2'],
  StreamStart: ['Selector process = 1'], StreamData: ['Input input = 2'],
  StreamInputRequest: ['oneof.event StreamStart start = 1', 'oneof.event StreamData data = 2', 'oneof.event Empty keepalive = 3'],
  SendSignalRequest: ['Selector process = 1', 'Signal signal = 2'],
}, 'Process', {
  List: ['Empty', 'ListResponse'], Start: ['StartRequest', 'EventResponse', 'server'], Connect: ['SelectRequest', 'EventResponse', 'server'],
  SendInput: ['SendInputRequest', 'Empty'], StreamInput: ['StreamInputRequest', 'Empty', 'client'], CloseStdin: ['SelectRequest', 'Empty'],
  SendSignal: ['SendSignalRequest', 'Empty'],
})

const filesystemFile = file('filesystem', {
  FileType: { FILE_TYPE_UNSPECIFIED: 0, FILE_TYPE_FILE: 1, FILE_TYPE_DIRECTORY: 2, FILE_TYPE_SYMLINK: 3 },
  EventType: { EVENT_TYPE_UNSPECIFIED: 0, EVENT_TYPE_CREATE: 1, EVENT_TYPE_WRITE: 2, EVENT_TYPE_REMOVE: 3, EVENT_TYPE_RENAME: 4, EVENT_TYPE_CHMOD: 5 },
}, {
  Empty: [], Timestamp: ['int64 seconds = 1', 'int32 nanos = 2'], PathRequest: ['string path = 1'],
  EntryInfo: ['string name = 1', 'FileType type = 2', 'string path = 3', 'int64 size = 4', 'uint32 mode = 5', 'string permissions = 6', 'string owner = 7',
    'string group = 8', 'Timestamp modified_time = 9', 'optional string symlink_target = 10', 'map metadata = 11'],
  EntryResponse: ['EntryInfo entry = 1'], MoveRequest: ['string source = 1', 'string destination = 2'],
  ListDirRequest: ['string path = 1', 'uint32 depth = 2'], ListDirResponse: ['repeated EntryInfo entries = 1'],
  WatchRequest: ['string path = 1', 'bool recursive = 2', 'bool include_entry = 3', 'bool allow_network_mounts = 4'],
  FilesystemEvent: ['string name = 1', 'EventType type = 2', 'optional EntryInfo entry = 3'],
  WatchDirResponse: ['oneof.event Empty start = 1', 'oneof.event FilesystemEvent filesystem = 2', 'oneof.event Empty keepalive = 3'],
  CreateWatcherResponse: ['string watcher_id = 1'], WatcherRequest: ['string watcher_id = 1'],
  GetWatcherEventsResponse: ['repeated FilesystemEvent events = 1'],
}, 'Filesystem', {
  Stat: ['PathRequest', 'EntryResponse'], MakeDir: ['PathRequest', 'EntryResponse'], Move: ['MoveRequest', 'EntryResponse'], Remove: ['PathRequest', 'Empty'],
  ListDir: ['ListDirRequest', 'ListDirResponse'], WatchDir: ['WatchRequest', 'WatchDirResponse', 'server'], CreateWatcher: ['WatchRequest', 'CreateWatcherResponse'],
  GetWatcherEvents: ['WatcherRequest', 'GetWatcherEventsResponse'], RemoveWatcher: ['WatcherRequest', 'Empty'],
})

const registry = createFileRegistry(create(FileDescriptorSetSchema, { file: [processFile, filesystemFile] }))
export const Process = registry.getService('process.Process')
export const Filesystem = registry.getService('filesystem.Filesystem')
