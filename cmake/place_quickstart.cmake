# Puts the library and the command of ${from} where the whole ones will lie below ${to}, unless those were
# built before.
if(NOT EXISTS ${to}/lib/libfa4_images.a)
  file(MAKE_DIRECTORY ${to}/bin ${to}/lib)
  file(COPY_FILE ${from}/fa4_command_quickstart ${to}/bin/fa4)
  file(COPY_FILE ${from}/libfa4.so.0 ${to}/lib/libfa4.so.0)
  file(CREATE_LINK libfa4.so.0 ${to}/lib/libfa4.so SYMBOLIC)
endif()
