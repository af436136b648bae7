// The structs of python/native/xla_ffi.h lie as those of the header that jaxlib brings. Compiled
// only.
#include "../../../python/native/xla_ffi.h"

#include "xla/ffi/api/c_api.h"

#include <type_traits>

namespace ours = fa4::xla;

// jaxlib 0.12 gave the struct and its enumerators other names than those before.
using TheirExtension = std::remove_pointer_t<decltype(XLA_FFI_CallFrame::extension_start)>;

#define SAME(mine, theirs, field, their_field)                                  \
  static_assert(offsetof(ours::mine, field) == offsetof(theirs, their_field) && \
                    sizeof(ours::mine::field) == sizeof(theirs::their_field),   \
                #mine "::" #field)

SAME(Extension, TheirExtension, struct_size, struct_size);
SAME(Extension, TheirExtension, type, type);
SAME(Extension, TheirExtension, next, next);
SAME(ApiVersion, XLA_FFI_Api_Version, major_version, major_version);
SAME(ApiVersion, XLA_FFI_Api_Version, minor_version, minor_version);
SAME(ErrorCreateArgs, XLA_FFI_Error_Create_Args, message, message);
SAME(ErrorCreateArgs, XLA_FFI_Error_Create_Args, code, errc);
SAME(Buffer, XLA_FFI_Buffer, dtype, dtype);
SAME(Buffer, XLA_FFI_Buffer, data, data);
SAME(Buffer, XLA_FFI_Buffer, rank, rank);
SAME(Buffer, XLA_FFI_Buffer, dims, dims);
SAME(ByteSpan, XLA_FFI_ByteSpan, data, ptr);
SAME(ByteSpan, XLA_FFI_ByteSpan, size, len);
SAME(Array, XLA_FFI_Array, dtype, dtype);
SAME(Array, XLA_FFI_Array, size, size);
SAME(Array, XLA_FFI_Array, data, data);
SAME(Buffers, XLA_FFI_Args, size, size);
SAME(Buffers, XLA_FFI_Args, types, types);
SAME(Buffers, XLA_FFI_Args, buffers, args);
SAME(Buffers, XLA_FFI_Rets, size, size);
SAME(Buffers, XLA_FFI_Rets, buffers, rets);
SAME(Attrs, XLA_FFI_Attrs, size, size);
SAME(Attrs, XLA_FFI_Attrs, types, types);
SAME(Attrs, XLA_FFI_Attrs, names, names);
SAME(Attrs, XLA_FFI_Attrs, attrs, attrs);
SAME(Api, XLA_FFI_Api, api_version, api_version);
SAME(Api, XLA_FFI_Api, create_error, XLA_FFI_Error_Create);
SAME(Api, XLA_FFI_Api, get_stream, XLA_FFI_Stream_Get);
SAME(Api, XLA_FFI_Api, get_device_ordinal, XLA_FFI_DeviceOrdinal_Get);
SAME(StreamGetArgs, XLA_FFI_Stream_Get_Args, context, ctx);
SAME(StreamGetArgs, XLA_FFI_Stream_Get_Args, stream, stream);
SAME(DeviceOrdinalGetArgs, XLA_FFI_DeviceOrdinal_Get_Args, context, ctx);
SAME(DeviceOrdinalGetArgs, XLA_FFI_DeviceOrdinal_Get_Args, device_ordinal, device_ordinal);
SAME(CallFrame, XLA_FFI_CallFrame, extension_start, extension_start);
SAME(CallFrame, XLA_FFI_CallFrame, api, api);
SAME(CallFrame, XLA_FFI_CallFrame, context, ctx);
SAME(CallFrame, XLA_FFI_CallFrame, stage, stage);
SAME(CallFrame, XLA_FFI_CallFrame, args, args);
SAME(CallFrame, XLA_FFI_CallFrame, rets, rets);
SAME(CallFrame, XLA_FFI_CallFrame, attrs, attrs);
SAME(Metadata, XLA_FFI_Metadata, api_version, api_version);
SAME(Metadata, XLA_FFI_Metadata, traits, traits);
SAME(MetadataExtension, XLA_FFI_Metadata_Extension, metadata, metadata);

#define VALUE(mine, theirs) \
  static_assert(static_cast<int>(ours::mine) == static_cast<int>(theirs), #mine)
VALUE(ExtensionType::kMetadata, XLA_FFI_Extension_Metadata);
VALUE(ErrorCode::kInvalidArgument, XLA_FFI_Error_Code_INVALID_ARGUMENT);
VALUE(ErrorCode::kResourceExhausted, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED);
VALUE(ErrorCode::kUnimplemented, XLA_FFI_Error_Code_UNIMPLEMENTED);
VALUE(ErrorCode::kInternal, XLA_FFI_Error_Code_INTERNAL);
VALUE(DataType::kU8, XLA_FFI_DataType_U8);
VALUE(DataType::kS64, XLA_FFI_DataType_S64);
VALUE(AttrType::kArray, XLA_FFI_AttrType_ARRAY);
static_assert(ours::kCommandBufferCompatible == XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE);
static_assert(XLA_FFI_API_MAJOR == 0);
