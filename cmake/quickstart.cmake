# The target `quickstart`: the library and the command of a newcomer's first minutes, without the
# prebuilt kernels and the emulator. They lie where the whole ones will lie, which the default target
# links anew: it knows nothing of what was copied there.
set(FA4_QUICKSTART_DIR ${PROJECT_BINARY_DIR}/quickstart)

if(NOT TARGET fa4_prebuild)  # the whole ones have no prebuilt kernels either
  add_custom_target(quickstart DEPENDS fa4 fa4_command)
  return()
endif()

fa4_capi_library(fa4_quickstart fa4_no_images)
add_executable(fa4_command_quickstart $<TARGET_OBJECTS:fa4_main>)
target_link_libraries(fa4_command_quickstart PRIVATE fa4_cli fa4_no_images)
set_target_properties(fa4_quickstart fa4_command_quickstart PROPERTIES
  FA4_NO_IMAGES ON EXCLUDE_FROM_ALL ON
  LIBRARY_OUTPUT_DIRECTORY ${FA4_QUICKSTART_DIR} RUNTIME_OUTPUT_DIRECTORY ${FA4_QUICKSTART_DIR})

add_custom_target(quickstart
  COMMAND ${CMAKE_COMMAND} -D from=${FA4_QUICKSTART_DIR} -D to=${PROJECT_BINARY_DIR}
          -P ${CMAKE_CURRENT_LIST_DIR}/place_quickstart.cmake
  DEPENDS fa4_quickstart fa4_command_quickstart
  COMMENT "The library and the command, without prebuilt kernels"
  VERBATIM)
